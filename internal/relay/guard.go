// The line's side of the disk guard. While the guard is on nothing may be sent, so it also has to
// end the calls that wait for a broker that is away: all calls of the lanes share a context that
// ends when the guard begins.

package relay

import (
	"context"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// guarding is what the lanes and the disk guard share. It is nil in a line without a guard.
type guarding struct {
	on    bool                         // the guard is on; guarded by Line.mu
	calls atomic.Pointer[callsContext] // of the lanes; nil while the line does not run

	// confirms counts what the broker confirmed, events and bytes what was deferred while the guard
	// was on. The lanes write them, and Flow reads them.
	confirms, events, bytes atomic.Int64
}

// callsContext is the context of the lanes' calls from one end of the guard to its next begin. All
// calls share one, so no call allocates one.
type callsContext struct {
	parent, ctx context.Context //nolint:containedctx // it outlives each call
	end         context.CancelFunc
}

// Guard switches the disk guard on or off. While it is on the lanes send nothing: the events that
// come, and the events of their calls, are deferred. An event in doubt may be at the broker
// already; it comes again later, as after a crash.
//
// A lane that decided to send before it heard of the guard finds its call ended: the context ends
// after the lanes were told that the guard begins, and there is a new context before they are told
// that it ends.
func (l *Line) Guard(on bool) {
	if l.guarding == nil || !l.setGuard(on) {
		return
	}
	if p, is := l.cfg.Sink.(sink.Placer); is {
		p.PlaceAnyway(on)
	}
}

// setGuard is Guard for the lanes and their calls. changed is false if the guard was in this state
// already.
func (l *Line) setGuard(on bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.guarding
	if g.on == on {
		return false
	}
	g.on = on
	l.pauses.SetGuard(on)
	now := g.calls.Load()
	if !on && now != nil {
		g.calls.Store(newCallsContext(now.parent))
	}
	for _, ln := range l.allLanes() {
		ln.addToInbox(func(in *order.Input) { in.Guarded = on })
	}
	if on && now != nil {
		now.end()
	}
	return true
}

// Flow is what has passed the lanes, and what waits, for the disk guard. Only a line with a guard
// has it.
func (l *Line) Flow() guard.Flow {
	g := l.guarding
	s := guard.Flow{Confirmed: g.confirms.Load(), Deferred: g.events.Load(), DeferredBytes: g.bytes.Load()}
	events, bytes := l.budget.Size()
	s.Waiting, s.WaitingBytes = events, bytes+int64(events)*guard.RowOverhead
	if l.waiting.Load() != 0 {
		s.Waiting++
	}
	return s
}

// newCallsContext makes a context of calls that ends with parent or when the guard begins.
func newCallsContext(parent context.Context) *callsContext {
	c := &callsContext{parent: parent}
	c.ctx, c.end = context.WithCancel(parent)
	return c
}

// startCalls makes the context of the lanes' calls when the line begins to run. Line.mu is held.
func (g *guarding) startCalls(ctx context.Context) {
	if g == nil {
		return
	}
	c := newCallsContext(ctx)
	if g.on {
		c.end()
	}
	g.calls.Store(c)
}

// callContext is the context of a lane's next call; ctx is the context of the lane itself, which a
// line without a guard uses.
func (g *guarding) callContext(ctx context.Context) context.Context {
	if g == nil {
		return ctx
	}
	return g.calls.Load().ctx
}

// isOn reports whether the guard is on, for a lane that is created meanwhile. Line.mu is held.
func (g *guarding) isOn() bool { return g != nil && g.on }

// countDeferred counts events that a lane has deferred while the guard is on.
func (g *guarding) countDeferred(events []*inflight.Event) {
	size := int64(0)
	for _, e := range events {
		size += int64(e.Size) + guard.RowOverhead
	}
	g.events.Add(int64(len(events)))
	g.bytes.Add(size)
}
