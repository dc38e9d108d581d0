// A new event on its way into a call: it is sent, waits, or is deferred.
//
// Why a later event cannot pass a deferred one (invariant I3). An event is deferred by decideNext
// or after a rejection (answers.go). Both give it to the retry table through deferEvent, which sets
// group.rows to some before the next event of the group is decided about. From then on decideNext
// answers `goes` for no event of the group, until returnToDirect (groups.go) sets rows to none.
// returnToDirect does that in one place, and only when all of this holds:
//
//   - no event of the group is on its way to the table (group.deferred is 0),
//   - a read that began after the last row was committed has seen the end of the group
//     (group.moreRows is false; a commit during the read sets it again),
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
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// queueArrived puts new events at the end of ready. With OneByOne, an event whose ordering group is
// known to the lane goes behind the waiting events of that group instead.
func (m *Machine) queueArrived(arrived inflight.List) {
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
		m.groupOf(e.Group, e.Place.ExchangeOrTopic).front = e
		m.ready.Push(e)
	}
}

// decision is what happens to a new event now: it is sent, waits, or is deferred.
type decision uint8

const (
	// goes: the event may be sent
	goes decision = iota
	// waits: the event waits in memory behind an event whose outcome is pending, or for a read
	waits
	// defers: the event goes to the retry table, and so do the events that wait behind it
	defers
)

// decideNext decides about the first event of its ordering group that is not on the wire. g may be
// nil, which means that the lane knows nothing of the group. An event is deferred only when no
// earlier event of its group is on the wire, waiting, or on its way to the dead letters. So the
// rows of a group are written in commit order.
func (m *Machine) decideNext(e *inflight.Event, g *group) decision {
	paused := m.guarded || m.cfg.Pauses.Paused(e.Place)
	switch {
	case g == nil && paused:
		return defers
	case g == nil && e.Group != 0 && m.known.mayHaveRows(e.Place.ExchangeOrTopic):
		return waits
	case g == nil:
		return goes
	case g.deadLettering || g.replay != nil || g.hasRequests() && g.rows == none:
		return waits
	case g.rows == some && m.waitsBehindRows(g):
		return waits
	case g.rows >= some:
		return defers
	case g.flying > 0:
		return waits
	case paused || g.rows == unknown && m.stopping:
		return defers
	case g.rows == unknown:
		return waits
	}
	return goes
}

// decideEvent decides about the next event of ready, or about one in open that was not sent.
func (m *Machine) decideEvent(e *inflight.Event) decision {
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

// nothingWaits reports whether no group, pause, guard or unknown row can keep an event from going.
// decideEvent then need not look up the event's group.
func (m *Machine) nothingWaits() bool {
	return m.specialGroups == 0 && !m.guarded && !m.known.anyUnsure() && !m.cfg.Pauses.AnyPaused() && (m.cfg.OneByOne || len(m.groups) == 0)
}

// rowsForOne is how many rows of a draining group are delivered for each new event that is deferred
// behind them. The larger it is, the sooner a busy group returns to direct delivery, and the slower
// the events of other groups go until then.
const rowsForOne = 4

// mostCredit bounds group.credit, in rows. Without it, all events of a burst after a long drain
// could be deferred.
const mostCredit = sink.MaxCallEvents

// drainPatience is how long a new event waits behind rows none of which moves, because the retry
// table cannot be read or a row waits for its turn. Then it is deferred, so that the reader goes on
// (TestNothingWaitsBehindRowsThatStandStill).
const drainPatience = 5 * time.Second

// waitsBehindRows reports whether a new event waits in memory until rows of its group have been
// delivered, instead of being deferred. It does not wait behind a row that may have no outcome for
// long, such as a probe or a row that is sent apart.
func (m *Machine) waitsBehindRows(g *group) bool {
	waits := g.credit < rowsForOne && !g.probing && !g.firstApart && m.now.Sub(g.drainedAt) < drainPatience
	if waits && m.lookAtWaitingAt.IsZero() {
		m.lookAtWaitingAt = m.now.Add(drainPatience)
	}
	return waits
}

// lookAtWaiting has moveGroupsOn decide again about groups whose events wait behind rows: those
// that have waited for drainPatience are then deferred. It runs every drainPatience, so no event
// waits behind rows that stand still for longer than twice that time.
func (m *Machine) lookAtWaiting() {
	if m.lookAtWaitingAt.IsZero() || m.lookAtWaitingAt.After(m.now) {
		return
	}
	m.lookAtWaitingAt = time.Time{}
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		if g := m.groups[id]; !g.drainedAt.IsZero() && g.waiting.First != nil {
			m.touch(g)
		}
	}
}

// fillCall adds to open the events that may be sent, up to a full call. It adds nothing while an
// event is in doubt, so the number of possible duplicates does not grow while calls fail.
func (m *Machine) fillCall() {
	if m.open.unknown > 0 {
		return
	}
	m.recheckOpen()
	m.moveGroupsOn()
	if !m.crowded {
		m.fillRows()
	}
	for m.ready.First != nil && m.open.hasRoom(m.ready.First) {
		e := m.ready.First
		what := m.decideEvent(e)
		// its destination was paused just now, or its group waits: nothing may pass those in open
		if what != goes && m.open.hasNewOfGroup(e) {
			break
		}
		m.ready.Pop()
		if what == goes {
			m.open.add(e)
		} else {
			m.putAside(e, what)
		}
	}
	m.crowded = m.ready.First != nil && !m.open.hasRoom(m.ready.First) && m.open.onlyRows()
	m.moveGroupsOn()
	// once more: some rows wait until the new events of their ordering group have left ready
	m.fillRows()
	m.moveGroupsOn()
}

// recheckOpen decides again about the new events that were offered and not sent, because a pause or
// a row may have come since. An event stays in open if an earlier event of its ordering group stays
// there.
func (m *Machine) recheckOpen() {
	items := m.open.items
	m.open.reset()
	for _, e := range items {
		what := goes
		if !e.IsRow() {
			what = m.decideEvent(e)
		}
		if what == goes || m.open.hasNewOfGroup(e) {
			m.open.add(e)
		} else {
			m.putAside(e, what)
		}
	}
	clear(items[len(m.open.items):])
}

// chooseCall chooses the events of the next call from open. While an event is in doubt, chooseCall
// leaves out unsent events that may no longer go. fillCall decides about them when no event of the
// lane is in doubt: then they are deferred, unless an earlier event of their ordering group stays
// in open.
func (m *Machine) chooseCall() {
	m.open.chooseCall(&m.call, m.callLimit, func(e *inflight.Event) bool {
		return e.State == sink.Unknown || e.IsRow() || m.decideEvent(e) == goes
	})
	if !m.nextCallAt.After(m.now) {
		m.out.Send = m.call.events
	}
}

// putAside carries out the decision about an event that may not go: it defers, dead-letters or
// keeps the event.
func (m *Machine) putAside(e *inflight.Event, what decision) {
	switch {
	case e.Event.Fault != nil:
		m.deadLetterUndecodable(e)
	case what == defers:
		if g := m.groups[e.Group]; g != nil {
			g.clearFront(e)
		}
		m.deferEvent(e)
	default:
		g := m.groupOf(e.Group, e.Place.ExchangeOrTopic)
		if g.front == e {
			g.front = nil
			g.waiting.PushFront(e)
		} else {
			g.waiting.Push(e)
		}
		m.touch(g)
	}
}

// openEvents holds the events that a lane offers to the sink and that have no outcome yet, in the
// order of the lane. It never holds more than one full call. Events in doubt are offered again
// before any new one. After an error they are offered one by one until one is confirmed. So within
// an ordering group no event is offered before an earlier one that was offered, unless both are in
// the same call: there the sink keeps the order. (With OneByOne no two events of an ordering group
// are in open at once.)
type openEvents struct {
	items   []*inflight.Event
	bytes   int
	unknown int // events in state Unknown
}

// hasRoom reports whether the event may be added to the call. An event that is larger than a call
// is sent alone.
func (o *openEvents) hasRoom(e *inflight.Event) bool {
	return len(o.items) == 0 || len(o.items) < sink.MaxCallEvents && o.bytes+e.Size <= sink.MaxCallBytes
}

// add appends an event, as one that was not sent yet.
func (o *openEvents) add(e *inflight.Event) {
	e.State = sink.Unsent
	o.items = append(o.items, e)
	o.bytes += e.Size
}

// hasNewOfGroup reports whether a new event of the event's ordering group is in open.
func (o *openEvents) hasNewOfGroup(e *inflight.Event) bool {
	return e.Group != 0 && slices.ContainsFunc(o.items, func(other *inflight.Event) bool { return other.Group == e.Group && !other.IsRow() })
}

// onlyRows reports whether no new event is in open.
func (o *openEvents) onlyRows() bool {
	return !slices.ContainsFunc(o.items, func(e *inflight.Event) bool { return !e.IsRow() })
}

// reset empties open. The caller goes through the old items and adds those again that stay.
func (o *openEvents) reset() { o.items, o.bytes, o.unknown = o.items[:0], 0, 0 }

// earlierUndecided reports whether an earlier event of the same ordering group has no outcome. It
// searches from the beginning of open, so it is asked only about rejected events, and about
// confirmed ones of a call in which not all were confirmed.
func (o *openEvents) earlierUndecided(e *inflight.Event) bool {
	for _, earlier := range o.items {
		switch {
		case earlier == e:
			return false
		case earlier.Group == e.Group && e.Group != 0 && (earlier.State == sink.Unsent || earlier.State == sink.Unknown):
			return true
		}
	}
	return false
}

// markUnsentBehind marks as unsent the events in doubt behind a rejected one of the same ordering
// group. Such an event may have reached the broker and overtaken the rejected one, as any event in
// flight may. If it has not, it is not sent again before the rejected one.
func (o *openEvents) markUnsentBehind(rejected *inflight.Event) {
	behind := false
	for _, e := range o.items {
		if behind = behind || e == rejected; behind && e.Group == rejected.Group && e.Group != 0 && e.State == sink.Unknown {
			e.State = sink.Unsent
		}
	}
}

// removeDecided removes the events that have an outcome, and counts the bytes and the events in
// doubt of the others.
func (o *openEvents) removeDecided() {
	rest := o.items[:0]
	o.bytes, o.unknown = 0, 0
	for _, e := range o.items {
		switch e.State {
		case sink.Confirmed, sink.Rejected:
			continue
		case sink.Unknown:
			o.unknown++
		case sink.Unsent:
		}
		o.bytes += e.Size
		rest = append(rest, e)
	}
	clear(o.items[len(rest):])
	o.items = rest
}

// chooseCall puts the events of the next call into c, in order, limit events at most. may says
// whether an event may still go; it is asked only while an event is in doubt. When an event is left
// out, the later ones of its ordering group are left out too.
func (o *openEvents) chooseCall(c *call, limit int, may func(*inflight.Event) bool) {
	c.items, c.events, c.leftOut = c.items[:0], c.events[:0], c.leftOut[:0]
	for _, e := range o.items {
		switch {
		case len(c.items) == limit:
		case o.unknown == 0 || !c.leavesGroupOut(e) && may(e):
			c.items = append(c.items, e)
			c.events = append(c.events, &e.Event)
		default:
			c.leftOut = append(c.leftOut, e)
		}
	}
}

// call is one call of Publish.
type call struct {
	items    []*inflight.Event
	events   []*event.Event
	rejected []*inflight.Event // of the last call
	leftOut  []*inflight.Event // events of open that may not go now
}

// leavesGroupOut reports whether an earlier event of the event's ordering group was left out.
func (c *call) leavesGroupOut(e *inflight.Event) bool {
	return e.Group != 0 && slices.ContainsFunc(c.leftOut, func(other *inflight.Event) bool { return other.Group == e.Group })
}
