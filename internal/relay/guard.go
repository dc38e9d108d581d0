// The line's side of the disk guard: it is switched on and off here, and the lanes' calls end when
// it begins.

package relay

import (
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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
