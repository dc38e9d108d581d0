// The context that the lanes' calls share, so that the disk guard can end them all, and its counts.

package relay

import (
	"context"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
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
