// The mirror's copies of dead letters on their way through the lanes.

package relay

import (
	"context"

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
	type answer struct {
		of  int
		out sink.Outcome
	}
	outcomes := make([]sink.Outcome, len(events))
	answers, waiting := make(chan answer, len(events)), 0 // no lane waits for the reader of answers
	for i, ev := range events {
		place, ok := c.Line.cfg.Sink.Place(ev)
		if !ok { // the topic is not known yet: the caller offers the copy again
			outcomes[i].State = sink.Unsent
			continue
		}
		waiting++
		e := &inflight.Event{Event: *ev, Place: place, Size: ev.Size(), Done: func(out sink.Outcome) { answers <- answer{i, out} }}
		c.Line.Found(place.Lane, []order.Found{{Replay: e}})
	}
	for range waiting {
		select {
		case a := <-answers:
			outcomes[a.of] = a.out
		case <-ctx.Done():
			return make([]sink.Outcome, len(events)) // all are Unknown
		}
	}
	return outcomes
}
