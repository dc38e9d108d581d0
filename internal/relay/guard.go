// The line's side of the disk guard: it is switched on and off here, and the context that the
// lanes' calls share ends when it begins.

package relay

import (
	"context"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// guarding is what the lanes and the disk guard share. A line without a guard has none.
type guarding struct {
	on    bool                  // guarded by Line.mu
	calls atomic.Pointer[calls] // of the lanes; nil while the line does not run

	confirms, events, bytes atomic.Int64
}

// calls is the context of the lanes' calls until the guard begins. One serves all calls, so no call
// allocates one.
type calls struct {
	parent, ctx context.Context //nolint:containedctx // it outlives each call
	end         context.CancelFunc
}

// Guard switches the disk guard on or off. While it is on the lanes send nothing: what comes, and
// what is in their calls, is deferred. What is in doubt may be at the broker already; it comes
// again later, as after a crash.
//
// A lane that decided to send before it heard of the guard finds its call ended: the context ends
// after the lanes were told, and there is a new one before they are told of the end.
func (l *Line) Guard(on bool) {
	if l.guarding == nil || !l.setGuard(on) {
		return
	}
	if p, is := l.cfg.Sink.(sink.Placer); is {
		p.PlaceAnyway(on)
	}
}

func (l *Line) setGuard(on bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.guarding
	if g.on == on {
		return false
	}
	g.on = on
	l.pauses.Hold(on)
	now := g.calls.Load()
	if !on && now != nil {
		g.calls.Store(newCalls(now.parent))
	}
	for _, ln := range l.all() {
		ln.take(func(in *order.Input) { in.Guarded = on })
	}
	if on && now != nil {
		now.end()
	}
	return true
}

// Flow tells what passed the lanes, and what waits. It is for a line with a guard.
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

func newCalls(parent context.Context) *calls {
	c := &calls{parent: parent}
	c.ctx, c.end = context.WithCancel(parent)
	return c
}

// run makes the context of the lanes' calls. Line.mu is held.
func (g *guarding) run(ctx context.Context) {
	if g == nil {
		return
	}
	c := newCalls(ctx)
	if g.on {
		c.end()
	}
	g.calls.Store(c)
}

// callContext is the context of a lane's next call; ctx is that of the lane.
func (g *guarding) callContext(ctx context.Context) context.Context {
	if g == nil {
		return ctx
	}
	return g.calls.Load().ctx
}

// isOn says whether the guard is on, for a new lane. Line.mu is held.
func (g *guarding) isOn() bool { return g != nil && g.on }

// deferred counts what a lane has deferred while the guard is on.
func (g *guarding) deferred(events []*inflight.Event) {
	size := int64(0)
	for _, e := range events {
		size += int64(e.Size) + guard.RowOverhead
	}
	g.events.Add(int64(len(events)))
	g.bytes.Add(size)
}
