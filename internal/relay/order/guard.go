// The disk guard in a lane: while it is on, everything is deferred, and nothing is sent or read.

package order

import (
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// guard takes the state of the disk guard.
//
// Why order holds (I3). The guard only adds a reason to defer, and takes away reasons to send:
// while it is on decideNext never answers `goes`. What it defers are rows like others, in the order
// of Defer, and the argument of decide.go does not ask why an event was deferred. The events of the
// last call are deferred too, in its order and before later ones of their group. One in doubt may
// be at the broker already. It comes again, as after a crash, and in front of the later ones again.
//
// Why memory stays flat (I5). A group whose rows are committed only waits for the end of the guard.
// So the lanes know few of them (guardedRoom); of the others the exchange or topic is marked as one
// that may have rows of any group, and a walk finds them at the end.
func (m *Machine) guard(on bool) {
	if m.guarded == on {
		return
	}
	m.guarded = on
	if on {
		m.guardBegins()
	} else {
		m.guardEnds()
	}
}

// guardBegins defers the events of the last call, and gives the rows in hand back. What a walk
// under way finds is given back as well, so its end must not count.
func (m *Machine) guardBegins() {
	for exchangeOrTopic := range m.known.unsure {
		m.known.unsure[exchangeOrTopic] = true
	}
	m.leaveReplays()
	m.deferOpen()
	for _, g := range m.turns {
		g.inTurn = false
	}
	clear(m.turns)
	m.turns, m.toRead = m.turns[:0], nil
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		if m.notNow(g); g.status == toRead {
			g.status, g.more = idle, true
		}
		if !g.alone { // the outcome of what was sent apart comes
			m.notProbing(g)
		}
		m.touch(g)
	}
	m.fails, m.before = 0, time.Time{}
}

// guardEnds reads the groups that have rows. Those that were forgotten are found by a walk.
func (m *Machine) guardEnds() {
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		m.touch(m.groups[id])
	}
	if m.known.any() {
		m.known.at = m.now
	}
}

// leaveReplays lets no event wait behind a replay that is not on the wire.
func (m *Machine) leaveReplays() {
	for e := m.replays.First; e != nil; e = e.Next {
		if g := m.groups[e.Group]; g != nil && g.replay == e {
			g.replay = nil
			m.touch(g)
		}
	}
}

// deferOpen empties open. A row or a replay in doubt is read, or requested, again.
func (m *Machine) deferOpen() {
	items := slices.Clone(m.open.items)
	clear(m.open.items)
	m.open.reset()
	for _, e := range items {
		switch {
		case isReplay(e):
			m.replayed(e, sink.Outcome{State: e.State})
		case e.IsRow():
			m.takeRowBack(e)
		default:
			m.putAside(e, m.decide(e))
		}
	}
}

// takeRowBack takes a row out of open that has no outcome: it stays in the table, and its group is
// read again from before it.
func (m *Machine) takeRowBack(e *inflight.Event) {
	g := m.groups[e.Row.Group]
	g.flying--
	g.more, g.refused = true, true
	m.giveBack(e)
	m.touch(g)
}
