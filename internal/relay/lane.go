// A lane: the goroutine between an order machine, which decides, and the sink, the retry table and
// the hooks, which act. All that can wait or fail is here, so that the machine needs neither.

package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// lane is an ordered queue with a goroutine that publishes its events. The goroutine takes what has
// arrived, asks its order machine what to do, does that, and repeats. So calls become larger under
// load, and an idle lane sends a single event at once.
type lane struct {
	number int // its number, from 0: sink.Place.Lane
	line   *Line
	arena  inflight.Arena // its chunks; guarded by the in-flight budget

	mu     sync.Mutex // guards inbox and asleep
	inbox  order.Input
	asleep bool          // the goroutine waits; a caller that adds something must signal it
	awake  chan struct{} // cap 1

	// The fields below belong to the lane's goroutine.
	machine *order.Machine
	// input is what the next Step gets: what was in the inbox, and the last call's outcomes
	input          order.Input
	outcomes       []sink.Outcome // of the last call, reused
	events         []*event.Event // for Hooks.Confirmed, reused
	sent           []sent.Entry   // for Recorder.Add, reused
	guardEndedCall bool           // the disk guard ended the last call
	probes         sync.WaitGroup // events that are sent apart
	failingText    string         // the error text that was logged last; "" when calls succeed
}

// newLane makes lane n of a line. Run starts it.
func newLane(n int, line *Line) *lane {
	return &lane{number: n, line: line, awake: make(chan struct{}, 1), machine: order.New(line.order)}
}

// push adds an event that the reader has admitted. It reports whether the lane sleeps; the reader
// then wakes the lane once, in Wake.
func (ln *lane) push(e *inflight.Event) (asleep bool) {
	ln.mu.Lock()
	ln.inbox.Arrived.Push(e)
	asleep, ln.asleep = ln.asleep, false
	ln.mu.Unlock()
	return asleep
}

// addToInbox calls add, which puts something into the inbox, and wakes the lane if it sleeps.
func (ln *lane) addToInbox(add func(*order.Input)) {
	ln.mu.Lock()
	add(&ln.inbox)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.wake()
	}
}

// wake wakes the lane's goroutine.
func (ln *lane) wake() {
	select {
	case ln.awake <- struct{}{}:
	default:
	}
}

// run is the lane's goroutine: it publishes until ctx is done, and the outcomes of its last call
// are handled. Events that are unsettled then stay where they are.
func (ln *lane) run(ctx context.Context) {
	in := &ln.input
	for ctx.Err() == nil || in.Outcomes != nil {
		ln.emptyInbox()
		in.Now = time.Now()
		a := ln.machine.Step(in)
		failed := in.Err
		if ln.guardEndedCall { // no failure of the broker: its events are deferred
			failed, ln.guardEndedCall = nil, false
		}
		in.Outcomes, in.Err = nil, nil
		ln.carryOut(ctx, a, failed, in.Now)
		switch {
		case ctx.Err() != nil:
		case len(a.Send) > 0:
			ln.outcomes = slices.Grow(ln.outcomes[:0], len(a.Send))[:len(a.Send)]
			clear(ln.outcomes)
			in.Outcomes = ln.outcomes
			calls := ln.line.guarding.callContext(ctx)
			in.Err = ln.line.cfg.Sink.Publish(calls, ln.number, a.Send, ln.outcomes)
			ln.guardEndedCall = in.Err != nil && calls.Err() != nil
		default:
			ln.sleepUntil(ctx, a.Wake)
		}
	}
	ln.probes.Wait()
}

// emptyInbox moves what is in the inbox to the input of the next Step.
func (ln *lane) emptyInbox() {
	in := &ln.input
	ln.mu.Lock()
	defer ln.mu.Unlock()
	box := &ln.inbox
	in.Arrived, in.Stopping, in.Guarded = box.Arrived, box.Stopping, box.Guarded
	in.Probed, box.Probed = box.Probed, emptied(in.Probed)
	in.Written, box.Written = box.Written, emptied(in.Written)
	in.Finished, box.Finished = box.Finished, emptied(in.Finished)
	in.Found, box.Found = box.Found, emptied(in.Found)
	box.Arrived = inflight.List{}
}

// emptied returns s without its elements, so that its memory is used again.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// carryOut carries out the machine's actions, except the call to the sink. failed is the last
// call's error; nil means that there was no call, that it succeeded, or that the guard ended it.
func (ln *lane) carryOut(ctx context.Context, a *order.Actions, failed error, now time.Time) {
	l, hooks := ln.line, &ln.line.cfg.Hooks
	if hooks.Rejected != nil {
		for _, r := range a.Rejected {
			hooks.Rejected(&r.Event.Event, r.Fault, r.Attempt)
		}
	}
	if hooks.Failed != nil && a.NoRow > 0 {
		hooks.Failed(a.NoRow)
	}
	if failed != nil && hooks.Unavailable != nil && ctx.Err() == nil {
		hooks.Unavailable(ln.number, a.Unknown, failed)
	}
	ln.logFailing(failed)
	if len(a.Confirmed) > 0 {
		// First they are recorded, then the tracker counts them: the watermark passes none before
		// its entry is there. Last their memory goes back to the budget.
		ln.recordSent(a.Confirmed)
		l.tracker.Settle(a.Confirmed)
		ln.reportConfirmed(a.Confirmed, now)
		l.budget.Release(a.Confirmed)
	}
	if len(a.Delivered) > 0 {
		ln.reportConfirmed(a.Delivered, now)
	}
	if g := l.guarding; g != nil {
		g.confirms.Add(int64(len(a.Confirmed) + len(a.Delivered)))
		if ln.input.Guarded {
			g.countDeferred(a.Defer)
		}
	}
	if a.Ended {
		l.wakeAll()
	}
	ln.handOver(a)
	for _, p := range a.Probe {
		calls := l.guarding.callContext(ctx)
		ln.probes.Go(func() { ln.sendProbe(calls, p) })
	}
}

// recordSent adds confirmed new events to the sent set. Rows of the retry table need no entry here:
// the statement that removes such a row records it.
func (ln *lane) recordSent(events []*inflight.Event) {
	if ln.line.cfg.Sent == nil {
		return
	}
	ln.sent = ln.sent[:0]
	for _, e := range events {
		if e.Origin.Relation == 0 || e.Origin.Tx == 0 || e.ID == nil {
			continue
		}
		ln.sent = append(ln.sent, sent.Entry{Relation: e.Origin.Relation, Tx: e.Origin.Tx, Digest: e.Digest})
	}
	if len(ln.sent) > 0 {
		ln.line.cfg.Sent.Add(ln.sent)
	}
}

// sendProbe sends an event apart from the lane's calls, and puts its outcome into the inbox. After
// an error the outcome is Unknown: the event is in doubt.
func (ln *lane) sendProbe(ctx context.Context, p order.Probe) {
	out, err := ln.line.prober.Probe(ctx, &p.Event.Event, p.Suspect)
	if err != nil {
		out = sink.Outcome{}
	}
	ln.addToInbox(func(in *order.Input) { in.Probed = append(in.Probed, order.Probed{Event: p.Event, Outcome: out}) })
}

// handOver gives the retry table what the machine has for it: events to write, results, and wants.
// The outcome of a copy goes to Copies.Publish instead.
func (ln *lane) handOver(a *order.Actions) {
	table := ln.line.cfg.RetryTable
	if len(a.Defer) > 0 {
		table.Defer(a.Defer)
	}
	finish := a.Finish[:0]
	for _, r := range a.Finish {
		if r.Event != nil && r.Event.Done != nil {
			r.Event.Done(sink.Outcome{State: r.Event.State, Fault: r.Event.Refusal})
		} else {
			finish = append(finish, r)
		}
	}
	if len(finish) > 0 {
		table.Finish(finish)
	}
	if len(a.Read)+len(a.Walk) > 0 {
		table.Read(ln.number, slices.Clone(a.Read), slices.Clone(a.Walk))
	}
}

// sleepUntil waits until something arrives in the inbox, or until a time. A zero time means that
// only an arrival ends the sleep.
func (ln *lane) sleepUntil(ctx context.Context, until time.Time) {
	ln.mu.Lock()
	box := &ln.inbox
	asleep := box.Arrived.First == nil && len(box.Probed)+len(box.Written)+len(box.Finished)+len(box.Found) == 0 && box.Stopping == ln.input.Stopping && box.Guarded == ln.input.Guarded
	ln.asleep = asleep
	ln.mu.Unlock()
	if !asleep {
		return
	}
	var at <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		at = timer.C
	}
	select {
	case <-ln.awake:
	case <-at:
	case <-ctx.Done():
	}
}

// reportConfirmed calls the hooks for events that the broker has.
func (ln *lane) reportConfirmed(events []*inflight.Event, now time.Time) {
	hooks := &ln.line.cfg.Hooks
	if hooks.Published != nil {
		for _, e := range events {
			hooks.Published(ln.number, &e.Event, e.Attempts, now)
		}
	}
	if hooks.Confirmed == nil {
		return
	}
	ln.events = ln.events[:0]
	for _, e := range events {
		ln.events = append(ln.events, &e.Event)
	}
	hooks.Confirmed(ln.number, ln.events, now)
}

// logFailing logs that calls fail in a row. It logs again when the error text changes, and when
// calls succeed again. A sink waits inside Publish while its broker is away, and logs that itself.
// So one failed call means only that a connection ended; two in a row are a fault that the sink
// does not log.
func (ln *lane) logFailing(err error) {
	switch {
	case ln.machine.FailedCalls() == 0 && ln.failingText != "":
		ln.line.log.Info("publishing works again", zap.Int("lane", ln.number))
		ln.failingText = ""
	case ln.machine.FailedCalls() > 1 && err != nil && err.Error() != ln.failingText:
		ln.failingText = err.Error()
		ln.line.log.Warn("publishing failed: it is tried again, nothing is dropped", zap.Int("lane", ln.number), zap.Error(err))
	}
}

// wakeAll wakes all lanes when a pause has ended: groups of each lane may have rested behind it.
func (l *Line) wakeAll() {
	for _, ln := range l.allLanes() {
		ln.wake()
	}
}

// allLanes returns the lanes that exist.
func (l *Line) allLanes() []*lane {
	if lanes := l.lanes.Load(); lanes != nil {
		return *lanes
	}
	return nil
}
