// The next call: which events of the lane go into it.

package order

import (
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// arrive queues new events: in ready, or behind an earlier event of their ordering group if one is
// in the lane.
func (m *Machine) arrive(arrived inflight.List) {
	if !m.cfg.OneByOne {
		m.ready.Join(&arrived)
		return
	}
	for arrived.First != nil {
		e := arrived.Pop()
		if e.Group == 0 {
			m.ready.Push(e)
			continue
		}
		if g := m.groups[e.Group]; g != nil {
			g.waiting.Push(e)
			m.touch(g)
			continue
		}
		m.group(e.Group, e.Place.ExchangeOrTopic).front = e
		m.ready.Push(e)
	}
}

// fill adds to open the events that may be sent, up to a full call. It adds nothing while an event
// is in doubt, so the number of possible duplicates does not grow while calls fail.
func (m *Machine) fill() {
	if m.open.unknown > 0 {
		return
	}
	m.recheck()
	m.moveOn()
	if !m.crowded {
		m.fillRows()
	}
	for m.ready.First != nil && m.open.room(m.ready.First) {
		e := m.ready.First
		what := m.decide(e)
		// its destination was paused just now, or its group waits: nothing may pass those in open
		if what != goes && m.open.has(e) {
			break
		}
		m.ready.Pop()
		if what == goes {
			m.open.add(e)
		} else {
			m.putAside(e, what)
		}
	}
	m.crowded = m.ready.First != nil && !m.open.room(m.ready.First) && m.open.onlyRows()
	m.moveOn()
	// once more: some rows wait until the new events of their ordering group have left ready
	m.fillRows()
	m.moveOn()
}

// recheck decides again about the events that were offered and not sent. An event stays in open if
// an earlier one of its ordering group stays there.
func (m *Machine) recheck() {
	items := m.open.items
	m.open.reset()
	for _, e := range items {
		what := goes
		if !e.IsRow() {
			what = m.decide(e)
		}
		if what == goes || m.open.has(e) {
			m.open.add(e)
		} else {
			m.putAside(e, what)
		}
	}
	clear(items[len(m.open.items):])
}

// choose fills the next call. While an event is in doubt, choose leaves out unsent events that may
// no longer go. fill decides about them when no event of the lane is in doubt: then they are
// deferred, unless an earlier event of their ordering group stays in open.
func (m *Machine) choose() {
	m.open.choose(&m.call, m.limit, func(e *inflight.Event) bool {
		return e.State == sink.Unknown || e.IsRow() || m.decide(e) == goes
	})
	if !m.before.After(m.now) {
		m.out.Send = m.call.events
	}
}

// putAside carries out the decision about an event that may not go: it defers, dead-letters or
// keeps the event.
func (m *Machine) putAside(e *inflight.Event, what decision) {
	switch {
	case e.Event.Fault != nil:
		m.undecodable(e)
	case what == defers:
		if g := m.groups[e.Group]; g != nil {
			g.release(e)
		}
		m.deferEvent(e)
	default:
		g := m.group(e.Group, e.Place.ExchangeOrTopic)
		if g.front == e {
			g.front = nil
			g.waiting.PushFront(e)
		} else {
			g.waiting.Push(e)
		}
		m.touch(g)
	}
}
