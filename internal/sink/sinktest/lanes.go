// The lanes of the suite, which keep the contract of Publish.

package sinktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// lanes publishes events as the relay's lanes do, without its cleverness: each lane a goroutine, a
// call at a time, at most one event of a key in a call, after an error what is in doubt first and
// alone.
type lanes struct {
	t    *testing.T
	sink sink.Sink

	mu       sync.Mutex
	rejected map[string]*sink.Fault // by id: an event that is rejected leaves
	errs     int
}

func newLanes(t *testing.T, b Broker) *lanes {
	return &lanes{t: t, sink: b.Sink(), rejected: map[string]*sink.Fault{}}
}

// publish returns when every event is confirmed or rejected, or ctx is done.
func (l *lanes) publish(ctx context.Context, events []*event.Event) error {
	byLane := map[int][]*event.Event{}
	for _, ev := range events {
		p, ok := l.sink.Place(ev)
		for !ok {
			select {
			case <-l.sink.Changed():
			case <-ctx.Done():
				return ctx.Err()
			}
			p, ok = l.sink.Place(ev)
		}
		byLane[p.Lane] = append(byLane[p.Lane], ev)
	}
	var lanes sync.WaitGroup
	for n, queue := range byLane {
		lanes.Go(func() { l.runLane(ctx, n, queue) })
	}
	lanes.Wait()
	return ctx.Err()
}

// runLane empties one lane's queue.
func (l *lanes) runLane(ctx context.Context, n int, queue []*event.Event) {
	for doubt := false; len(queue) > 0 && ctx.Err() == nil; {
		call := chooseCall(queue, doubt)
		outcomes, err := publishChecked(ctx, l.t, l.sink, n, call)
		if doubt = err != nil; doubt {
			l.mu.Lock()
			l.errs++
			l.mu.Unlock()
			if !pauseAfterFailure(ctx) {
				return
			}
		}
		done := map[*event.Event]bool{}
		for i, o := range outcomes {
			switch o.State {
			case sink.Confirmed:
				done[call[i]] = true
			case sink.Rejected:
				done[call[i]] = true
				l.mu.Lock()
				l.rejected[string(call[i].ID)] = o.Fault
				l.mu.Unlock()
			case sink.Unknown, sink.Unsent: // offered again
			}
		}
		var rest []*event.Event
		for _, ev := range queue {
			if !done[ev] {
				rest = append(rest, ev)
			}
		}
		queue = rest
	}
}

// chooseCall takes the next call from a queue: the first event of each key.
func chooseCall(queue []*event.Event, alone bool) []*event.Event {
	if alone {
		return queue[:1]
	}
	var call []*event.Event
	taken, size := map[uint64]bool{}, 0
	for _, ev := range queue {
		if taken[ev.Hash] {
			continue
		}
		if size += ev.Size(); len(call) == sink.MaxCallEvents || size > sink.MaxCallBytes && len(call) > 0 {
			break
		}
		taken[ev.Hash] = true
		call = append(call, ev)
	}
	return call
}

// pauseAfterFailure spares the processor between two failed calls.
func pauseAfterFailure(ctx context.Context) bool {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// publishChecked makes one call and checks what the contract says of every call's outcomes.
func publishChecked(ctx context.Context, t *testing.T, s sink.Sink, lane int, events []*event.Event) ([]sink.Outcome, error) {
	outcomes := make([]sink.Outcome, len(events))
	err := s.Publish(ctx, lane, events, outcomes)
	if fault := Broken(outcomes, err); fault != "" {
		t.Errorf("the contract is broken: %s (error %v)", fault, err)
	}
	return outcomes, err
}

// Broken names the clause of sink.Sink's contract that a call has broken, "" for none.
func Broken(outcomes []sink.Outcome, err error) string {
	var count [4]int
	for i, o := range outcomes {
		count[o.State]++
		if (o.State == sink.Rejected) != (o.Fault != nil) {
			return fmt.Sprintf("outcome %d is %s with fault %v", i, o.State, o.Fault)
		}
	}
	switch {
	case err == nil && count[sink.Unknown] > 0:
		return fmt.Sprintf("%d outcomes are unknown without an error", count[sink.Unknown])
	case err != nil && count[sink.Unknown] == 0 && count[sink.Unsent] < len(outcomes):
		return "an error, nothing is unknown, and not all are unsent"
	}
	return ""
}
