// A lane: an ordered queue with a goroutine that publishes it.

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

// lane is an ordered queue with a goroutine that publishes it. It takes what has arrived, asks its
// order machine what to do, does that, and repeats. So calls become larger under load, and an idle
// lane sends a single event at once.
type lane struct {
	n     int
	line  *Line
	arena inflight.Arena // guarded by the in-flight budget

	mu     sync.Mutex // guards inbox and asleep
	inbox  order.Input
	asleep bool          // the goroutine waits; a caller that adds something must signal it
	awake  chan struct{} // cap 1

	// The fields below belong to the lane's goroutine.
	machine   *order.Machine
	taken     order.Input // what was in the inbox
	outcomes  []sink.Outcome
	events    []*event.Event
	sent      []sent.Entry
	digestBuf []byte
	cut       bool // the disk guard ended the last call
	probes    sync.WaitGroup
	failing   string // the error text of failing calls that was logged last; "" when calls succeed
}

func newLane(n int, line *Line) *lane {
	return &lane{n: n, line: line, awake: make(chan struct{}, 1), machine: order.New(line.order)}
}

// push adds an event. It reports whether the lane sleeps: then the caller must signal the lane
// once.
func (ln *lane) push(e *inflight.Event) (asleep bool) {
	ln.mu.Lock()
	ln.inbox.Arrived.Push(e)
	asleep, ln.asleep = ln.asleep, false
	ln.mu.Unlock()
	return asleep
}

// take leaves something in the inbox, and wakes the lane.
func (ln *lane) take(leave func(*order.Input)) {
	ln.mu.Lock()
	leave(&ln.inbox)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.signal()
	}
}

// signal wakes the lane's goroutine.
func (ln *lane) signal() {
	select {
	case ln.awake <- struct{}{}:
	default:
	}
}

// run publishes until ctx is done. Unsettled events stay where they are.
func (ln *lane) run(ctx context.Context) {
	in := &ln.taken
	for ctx.Err() == nil || in.Outcomes != nil {
		ln.receive()
		in.Now = time.Now()
		a := ln.machine.Step(in)
		failed := in.Err
		if ln.cut { // no failure of the broker: its events are deferred
			failed, ln.cut = nil, false
		}
		in.Outcomes, in.Err = nil, nil
		ln.do(ctx, a, failed, in.Now)
		switch {
		case ctx.Err() != nil:
		case len(a.Send) > 0:
			ln.outcomes = slices.Grow(ln.outcomes[:0], len(a.Send))[:len(a.Send)]
			clear(ln.outcomes)
			in.Outcomes = ln.outcomes
			calls := ln.line.guarding.callContext(ctx)
			in.Err = ln.line.cfg.Sink.Publish(calls, ln.n, a.Send, ln.outcomes)
			ln.cut = in.Err != nil && calls.Err() != nil
		default:
			ln.sleep(ctx, a.Wake)
		}
	}
	ln.probes.Wait()
}

// receive takes what is in the inbox.
func (ln *lane) receive() {
	in := &ln.taken
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

// emptied is s for reuse, without what it held.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// do carries out what the order machine wants, except the call to the sink.
func (ln *lane) do(ctx context.Context, a *order.Actions, failed error, now time.Time) {
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
		hooks.Unavailable(ln.n, a.Unknown, failed)
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
		if ln.taken.Guarded {
			g.deferred(a.Defer)
		}
	}
	if a.Ended {
		l.wakeAll()
	}
	ln.handOver(a)
	for _, p := range a.Probe {
		calls := l.guarding.callContext(ctx)
		ln.probes.Go(func() { ln.probe(calls, p) })
	}
}

// recordSent adds confirmed events to the sent set. A row of the retry table is recorded by the
// statement that removes it.
func (ln *lane) recordSent(events []*inflight.Event) {
	if ln.line.cfg.Sent == nil {
		return
	}
	ln.sent = ln.sent[:0]
	for _, e := range events {
		if e.Origin.Relation == 0 || e.Origin.Tx == 0 || e.ID == nil {
			continue
		}
		entry := sent.Entry{Relation: e.Origin.Relation, Tx: e.Origin.Tx}
		entry.Digest, ln.digestBuf = sent.Digest(e.Origin.Tx, e.ID, ln.digestBuf)
		ln.sent = append(ln.sent, entry)
	}
	if len(ln.sent) > 0 {
		ln.line.cfg.Sent.Add(ln.sent)
	}
}

// probe sends an event apart from the lane's calls. An error leaves it in doubt, as its outcome is.
func (ln *lane) probe(ctx context.Context, p order.Probe) {
	out, err := ln.line.prober.Probe(ctx, &p.Event.Event, p.Suspect)
	if err != nil {
		out = sink.Outcome{}
	}
	ln.take(func(in *order.Input) { in.Probed = append(in.Probed, order.Probed{Event: p.Event, Outcome: out}) })
}

// handOver gives the retry table its events, results and wants.
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
		table.Read(ln.n, slices.Clone(a.Read), slices.Clone(a.Walk))
	}
}

// sleep waits until something arrives, or a time.
func (ln *lane) sleep(ctx context.Context, until time.Time) {
	ln.mu.Lock()
	box := &ln.inbox
	asleep := box.Arrived.First == nil && len(box.Probed)+len(box.Written)+len(box.Finished)+len(box.Found) == 0 && box.Stopping == ln.taken.Stopping && box.Guarded == ln.taken.Guarded
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

func (ln *lane) reportConfirmed(events []*inflight.Event, now time.Time) {
	hooks := &ln.line.cfg.Hooks
	if hooks.Published != nil {
		for _, e := range events {
			hooks.Published(ln.n, &e.Event, e.Attempts, now)
		}
	}
	if hooks.Confirmed == nil {
		return
	}
	ln.events = ln.events[:0]
	for _, e := range events {
		ln.events = append(ln.events, &e.Event)
	}
	hooks.Confirmed(ln.n, ln.events, now)
}

// logFailing logs that calls fail in a row. It logs again when the error text changes, and when
// calls succeed again. A sink waits inside Publish while its broker is away, and logs that itself.
// So one failed call means only that a connection ended; two in a row are a fault that the sink
// does not log.
func (ln *lane) logFailing(err error) {
	switch {
	case ln.machine.Fails() == 0 && ln.failing != "":
		ln.line.log.Info("publishing works again", zap.Int("lane", ln.n))
		ln.failing = ""
	case ln.machine.Fails() > 1 && err != nil && err.Error() != ln.failing:
		ln.failing = err.Error()
		ln.line.log.Warn("publishing failed: it is tried again, nothing is dropped", zap.Int("lane", ln.n), zap.Error(err))
	}
}

// wakeAll wakes all lanes: a pause ended.
func (l *Line) wakeAll() {
	for _, ln := range l.all() {
		ln.signal()
	}
}

// all returns the existing lanes.
func (l *Line) all() []*lane {
	if lanes := l.lanes.Load(); lanes != nil {
		return *lanes
	}
	return nil
}
