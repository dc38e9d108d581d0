// The decision about the next event of an ordering group: it is sent, waits, or is deferred.
//
// Why a later event cannot pass a deferred one (invariant I3). An event is deferred by decideNext
// or after a rejection (rejections.go). Both give it to the retry table through deferEvent, which
// sets group.rows to some before the next event of the group is decided about. From then on
// decideNext answers `goes` for no event of the group, until settle (move.go) sets rows to none.
// settle does that in one place, and only when all of this holds:
//
//   - no event of the group is on its way to the table (group.deferred is 0),
//   - a read that began after the last row was committed has seen the end of the group (group.more
//     is false; a commit during the read sets it again),
//   - every row that was read has been delivered, or has left the group in another way that is
//     committed (hand, flying and status).
//
// The rows themselves are sent in commit order, because a read begins behind the last row that was
// read and leaves none out, and a rejected row takes the rows behind it out of memory (rows.go).
//
// What a lane has never seen, or has forgotten, is not taken for empty: while an exchange or topic
// may have rows of unknown groups (known.go), a group starts as unknown, and its first event waits
// for a read of the group.

package order

import (
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
)

// decision is what happens to a new event now.
type decision uint8

const (
	goes decision = iota // it may be sent
	// it waits in memory behind an event whose outcome is pending, or for a read
	waits
	defers // it goes to the retry table, and so does what waits behind it
)

// decideNext decides about the first event of its ordering group that is not on the wire. g may be
// nil: nothing is known of the group. An event is deferred only when no earlier event of its group
// is on the wire, waiting or dying. So the rows of a group are written in commit order.
func (m *Machine) decideNext(e *inflight.Event, g *group) decision {
	paused := m.guarded || m.cfg.Pauses.Paused(e.Place)
	switch {
	case g == nil && paused:
		return defers
	case g == nil && e.Group != 0 && m.known.mayHaveRows(e.Place.ExchangeOrTopic):
		return waits
	case g == nil:
		return goes
	case g.dying || g.replay != nil || g.asked() && g.rows == none:
		return waits
	case g.rows == some && m.waitsBehindRows(g):
		return waits
	case g.rows == some || g.blocked:
		return defers
	case g.flying > 0:
		return waits
	case paused || g.rows == unknown && m.stop:
		return defers
	case g.rows == unknown:
		return waits
	}
	return goes
}

// decide decides about an event of ready, or one in open that was not sent.
func (m *Machine) decide(e *inflight.Event) decision {
	if e.Event.Fault != nil {
		return defers
	}
	if m.nothingWaits() {
		return goes
	}
	g := m.groups[e.Group] // ordering group 0 has no state
	if g != nil && g.front != e && g.waiting.First != nil {
		return waits
	}
	return m.decideNext(e, g)
}

// nothingWaits reports whether no ordering group has a state that decide has to look at.
func (m *Machine) nothingWaits() bool {
	return m.special == 0 && !m.guarded && !m.known.any() && !m.cfg.Pauses.Any() && (m.cfg.OneByOne || len(m.groups) == 0)
}
