package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// flowing is a stream of events through a sink, until end: keys in turn, each lane with one call at
// a time. Every event must be confirmed in the end; what is rejected for its destination's fault
// comes again.
type flowing struct {
	t         testing.TB
	sink      *running
	stop      context.CancelFunc
	done      sync.WaitGroup
	confirmed atomic.Int64

	mu       sync.Mutex
	all      []*event.Event
	rejected map[sink.Reason]int
}

// flow makes events of so many keys for a topic.
func flow(t testing.TB, r *running, topic string, keys int) *flowing {
	ctx, stop := context.WithCancel(context.Background())
	f := &flowing{t: t, sink: r, stop: stop, rejected: map[sink.Reason]int{}}
	queues := map[int]chan *event.Event{}
	f.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			ev := newEvent(topic, fmt.Sprint("key-", n%keys))
			ev.Hash = uint64(n % keys)
			lane := r.laneOf(ev)
			queue := queues[lane]
			if queue == nil {
				queue = make(chan *event.Event, 200)
				queues[lane] = queue
				f.done.Go(func() { f.lane(lane, queue) })
			}
			select {
			case queue <- ev:
				f.mu.Lock()
				f.all = append(f.all, ev)
				f.mu.Unlock()
			case <-ctx.Done():
			}
			if n%20 == 0 { // in batches, and no more than a busy machine has time for
				kafkaclient.Sleep(ctx, flowPause)
			}
		}
		for _, queue := range queues {
			close(queue)
		}
	})
	return f
}

func (f *flowing) lane(n int, queue chan *event.Event) {
	for ev := range queue {
		open := []*event.Event{ev}
		for len(queue) > 0 && len(open) < 100 {
			open = append(open, <-queue)
		}
		for len(open) > 0 {
			outcomes := make([]sink.Outcome, len(open))
			err := f.sink.Publish(context.Background(), n, open, outcomes)
			if err != nil {
				f.t.Errorf("publish: %v", err)
				return
			}
			before := len(open)
			open = f.settle(open, outcomes)
			if len(open) == before {
				kafkaclient.Sleep(context.Background(), 50*time.Millisecond)
			}
		}
	}
}

func (f *flowing) settle(call []*event.Event, outcomes []sink.Outcome) (open []*event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault := brokenContract(call, outcomes, nil); fault != "" {
		f.t.Errorf("the contract is broken: %s", fault)
	}
	for i, o := range outcomes {
		switch o.State {
		case sink.Confirmed:
			f.confirmed.Add(1)
		case sink.Rejected:
			f.rejected[o.Fault.Reason]++
			if o.Fault.Class != sink.Destination {
				f.t.Errorf("rejected: %v", o.Fault)
			}
			open = append(open, call[i])
		default:
			open = append(open, call[i])
		}
	}
	return open
}

// wait waits for n more events to be confirmed.
func (f *flowing) wait(n int64) {
	f.t.Helper()
	from := f.confirmed.Load()
	await.Until(f.t, fmt.Sprintf("%d more events are confirmed", n), func() bool { return f.confirmed.Load() >= from+n })
}

// end ends the flow and returns all its events, which are confirmed.
func (f *flowing) end() []*event.Event {
	f.t.Helper()
	f.stop()
	f.done.Wait()
	if n := int(f.confirmed.Load()); n != len(f.all) {
		f.t.Errorf("%d of %d events are confirmed", n, len(f.all))
	}
	return f.all
}
