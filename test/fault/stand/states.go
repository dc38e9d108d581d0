// States of a relay at work, with its statements stopped or on the way.

package stand

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
)

// state is one in which the relay's statement is met.
type state struct {
	name  string
	enter func(c *crash, w Work) (leave func())
}

// states are all of them. What leave lets go happens after the relay's death, or when another one
// leads.
var states = []state{
	{"whatever it is doing", func(c *crash, w Work) func() {
		w.run(c)
		return func() {}
	}},
	{"with a statement before its fence", func(c *crash, w Work) func() { return c.inside(w, beforeFence(w.Table)) }},
	{"with a statement behind its fence", func(c *crash, w Work) func() { return c.inside(w, behindFence(w.Table)) }},
	{"with statements that have not reached the server", func(c *crash, w Work) func() {
		w.run(c)
		c.way.Hold(netproxy.Up)
		c.Must(c.way.WaitHeld(c.Context(), netproxy.Up, 500)) // more than reports
		return func() { c.way.Release(netproxy.Up) }
	}},
	{"with statements whose answers have not come", func(c *crash, w Work) func() {
		release := c.inside(w, behindFence(w.Table))
		c.way.Hold(netproxy.Down)
		release()
		c.Gone() // it is done, and nobody hears of it
		return func() { c.way.Release(netproxy.Down) }
	}},
	{"with events at the broker that are not confirmed", func(c *crash, w Work) func() {
		w.run(c)
		c.Broker.Hold(netproxy.Down)
		c.Must(c.Broker.WaitHeld(c.Context(), netproxy.Down, 1))
		return func() { c.Broker.Release(netproxy.Down) }
	}},
}

// run has the relay at work.
func (w Work) run(c *crash) {
	c.T.Helper()
	if w.off != nil {
		w.off(c)
	}
	if w.busy != nil {
		w.busy(c)
	}
}

// over reports whether no more statement of the work will come.
func (w Work) over(c *crash) bool { return w.done != nil && w.done(c) }

// inside has a statement of the relay stand at a stop.
func (c *crash) inside(w Work, at Stop) (release func()) {
	c.T.Helper()
	if w.busy != nil && c.random.IntN(2) == 0 {
		w.run(c)
		release = c.Hold(at)
	} else {
		release = c.Hold(at)
		if w.off != nil {
			w.off(c)
		}
	}
	c.Until("a statement to stand "+at.Name, func() bool { return c.waiting() > 0 || w.over(c) })
	return release
}
