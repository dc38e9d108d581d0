// The mirror's copies of dead letters on their way through the lanes.

package relay

import (
	"context"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Copies sends the mirror's copies of dead letters through the lanes. A copy has no order, and the
// retry table does not see it.
type Copies struct{ Line *Line }

// Publish publishes events and waits for their outcomes, one each. It returns soon after ctx is
// done.
func (c *Copies) Publish(ctx context.Context, events []*event.Event) []sink.Outcome {
	b := &batch{outcomes: make([]sink.Outcome, len(events)), left: 1, done: make(chan struct{})}
	for i, ev := range events {
		place, ok := c.Line.cfg.Sink.Place(ev)
		if !ok { // the topic is not known yet: the caller offers the copy again
			b.take(i, sink.Outcome{State: sink.Unsent}, 0)
			continue
		}
		b.take(i, sink.Outcome{}, 1)
		e := &inflight.Event{Event: *ev, Place: place, Size: ev.Size(), Done: func(out sink.Outcome) { b.take(i, out, -1) }}
		c.Line.Found(place.Lane, []order.Found{{Replay: e}})
	}
	b.mu.Lock()
	b.release(-1)
	b.mu.Unlock()
	select {
	case <-b.done:
		return b.outcomes
	case <-ctx.Done():
		// all are Unknown. The slice is new: the lanes may still write into the first one
		return make([]sink.Outcome, len(events))
	}
}

// batch is the events of one Publish.
type batch struct {
	mu       sync.Mutex
	outcomes []sink.Outcome
	left     int
	done     chan struct{} // closed when none is left
}

func (b *batch) take(i int, out sink.Outcome, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[i] = out
	b.release(left)
}

func (b *batch) release(left int) {
	if b.left += left; b.left == 0 {
		close(b.done)
	}
}
