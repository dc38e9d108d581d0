// Events and results on their way to the retry table.

package order

import (
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// deferEvent gives an event to the retry table.
func (m *Machine) deferEvent(e *inflight.Event) {
	m.out.Defer = append(m.out.Defer, e)
	if e.Group == 0 {
		return
	}
	g := m.group(e.Group, e.Place.ExchangeOrTopic)
	m.touch(g)
	g.deferred++
	g.credit = max(0, g.credit-rowsForOne)
	if g.rows == unknown {
		g.more = true // there may be rows before this one
	}
	g.rows = some
	// What the stream repeats after a crash may be in front of rows that an earlier leader has
	// written. So the group is not read before the row of this event is committed, and then from
	// its beginning.
	if !m.repeated.Less(e.Position) {
		g.repeated++
	}
}

// deadLetter gives an event to the dead letters. Its ordering group waits until the row is
// committed, and goes on then.
func (m *Machine) deadLetter(e *inflight.Event) {
	m.out.Defer = append(m.out.Defer, e)
	if e.Group != 0 {
		g := m.group(e.Group, e.Place.ExchangeOrTopic)
		g.dying = true
		m.touch(g)
	}
}

// undecodable dead-letters a row that cannot be relayed as configured.
func (m *Machine) undecodable(e *inflight.Event) {
	e.Refusal = &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: e.Event.Fault.Error()}
	e.Attempts, e.Since, e.Dead = 1, m.now, true
	m.out.Rejected = append(m.out.Rejected, Rejection{e, e.Refusal, 1})
	m.deadLetter(e)
}

// finish gives a result to the retry table; the group is not forgotten before it is committed.
func (m *Machine) finish(g *group, r Result) {
	g.pending++
	m.out.Finish = append(m.out.Finish, r)
}

// write gives the result of the group's first row to the retry table. Nothing of the group goes
// until it is committed.
func (m *Machine) write(g *group, r Result) {
	g.refused = true
	m.stopWaiting(g)
	g.status = writing
	m.finish(g, r)
}
