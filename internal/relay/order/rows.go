// Rows of the retry table on their way through a lane: their commit, the read that finds them, the
// call or probe that sends them, and their result. This is how a deferred event gets to the broker
// without being passed: while rows of an ordering group are in open, none of its new events is, and
// with OneByOne only one row of the group is.
//
// Operators' requests about rows come through here too. A request is carried out while its ordering
// group is at rest, because a row in flight must not leave the table.

package order

import (
	"container/heap"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// handleWritten notes that the row of a deferred or dead-lettered event is committed. The group may
// now read the row, and a group that waited for this commit moves on.
func (m *Machine) handleWritten(w *Written) {
	g := m.groups[w.RowGroup]
	switch {
	case !w.Ordered && (w.Dead || m.stopping):
		return
	case !w.Ordered: // it has no order: its row is a group of its own
		g = m.groupOf(w.RowGroup, w.Place.ExchangeOrTopic)
		m.setRows(g, max(g.rows, some))
		// The stream has repeated it after its first row was delivered: this row is not behind that
		// one, where the next read would begin.
		if g.lastRead != (store.RowPosition{}) {
			g.readFromStart()
		}
	case w.Dead && !m.cfg.Block:
		g.deadLettering = false
		m.touch(g)
		return
	default:
		g.deferred--
	}
	if w.Ordered && !m.repeated.Less(w.Position) { // it may be in front of rows that were read
		g.repeated--
		m.repeatedAt = m.now
		g.readFromStart()
	}
	if w.Dead {
		m.setRows(g, blocked)
		g.drainedAt = time.Time{}
	} else {
		g.moreRows = true
		m.awaitFirstRow(g, w)
	}
	m.touch(g)
}

// awaitFirstRow decides what a group waits for after the commit of a row that may be its first: for
// the row's time, for the end of a pause, or for a read. It changes nothing if the group is busy
// already.
func (m *Machine) awaitFirstRow(g *group, w *Written) {
	switch target, paused := m.cfg.Pauses.Target(w.Place); {
	case g.status != idle || g.staleRead || m.stopping || m.guarded || g.rows == blocked:
	case g.hand.n+g.flying > 0 || g.readAgain: // moveGroupsOn reads on
	case w.DueIn > 0:
		m.waitUntil(g, m.now.Add(w.DueIn))
	case paused:
		m.restBehindPause(g, target)
	default:
		m.queueRead(g)
	}
}

// maxWants bounds the reads that a lane has asked for and that were not answered yet.
const maxWants = 500

// askForRows asks the retry table for rows of the groups in toRead. A group with a rejected row is
// read again only when the results of the rows that were on the wire with the rejected one are
// committed, because the new read begins in front of all of them.
func (m *Machine) askForRows() {
	if m.guarded {
		return
	}
	rest := m.toRead[:0]
	for i, g := range m.toRead {
		switch {
		case g.status != toRead: // something else came up
			continue
		case m.readsOut >= maxWants:
			rest = append(rest, m.toRead[i:]...)
		case g.staleRead || g.repeated > 0 || g.readAgain && (g.flying > 0 || g.pendingResults > 0 || g.hand.n > 0):
			rest = append(rest, g)
			continue
		default:
			if g.readAgain {
				g.readAgain, g.lastRead = false, g.lastGone
			}
			// what is committed from now on may be missing in the answer
			g.status, g.moreRows = reading, false
			m.readsOut++
			m.out.Read = append(m.out.Read, Want{Want: store.Want{Group: g.id, After: g.lastRead}, ExchangeOrTopic: g.exchangeOrTopic, Probe: g.probing})
			continue
		}
		break
	}
	clear(m.toRead[len(rest):])
	m.toRead = rest
	m.askForWalks()
}

// readDueGroups queues reads of the groups that backed off and whose dueAt has come.
func (m *Machine) readDueGroups() {
	for len(m.due) > 0 && !m.due[0].at.After(m.now) {
		d := heap.Pop(&m.due).(dueGroup)
		if g := m.groups[d.group]; g != nil && g.status == backingOff && g.dueAt.Equal(d.at) {
			m.queueRead(g)
		}
	}
}

// handleFound takes one Found: it keeps the rows that the group may send now, and gives the others
// back to the table.
func (m *Machine) handleFound(f *Found) {
	g := m.groups[f.Group]
	switch {
	case f.Replay != nil:
		m.replays.Push(f.Replay)
		return
	case f.Unsure:
		m.known.unsure[f.ExchangeOrTopic] = m.guarded // its walk is under way
		if m.repeated.Less(f.Repeated) {
			m.repeated = f.Repeated
		}
		return
	case f.WalkBegins:
		m.beginWalk(f.ExchangeOrTopic)
		return
	case f.WalkEnds:
		m.endWalk(f.ExchangeOrTopic)
		return
	case f.Request != nil:
		m.handleRequest(f)
		return
	case f.Changed:
		if g = m.groupOf(f.Group, f.ExchangeOrTopic); g.status != carryingOut {
			m.readChanged(g)
		}
		return
	case !f.Walk:
		m.readsOut--
		if g.staleRead {
			m.giveStaleBack(g, f.Rows)
			return
		}
		g.status = idle
	case m.isOutdated(f):
		m.giveRowsBack(f.Rows...)
		return
	case m.stopping || m.guarded || g != nil && (g.readIsOut() || !(g.rows == unknown && g.status == idle || g.status == behindPause && g.flying == 0 && g.pendingResults == 0)):
		m.giveRowsBack(f.Rows...) // the group goes its own way
		return
	default:
		g = m.groupOf(f.Group, f.ExchangeOrTopic)
		m.endRest(g)
		g.moreRows = true
	}
	g.moreRows = g.moreRows || f.More
	if g.rows == blocked { // no more, if this answer does not say so
		m.setRows(g, some)
	}
	switch {
	case g.hasRequests() || m.stopping || f.Blocked:
		m.giveRowsBack(f.Rows...)
		g.moreRows = true
		if f.Blocked {
			m.setRows(g, blocked)
		}
		m.emptyHand(g)
		m.cancelProbe(g)
	case f.Failed: // a row is there, so new events are deferred behind it
		m.setRows(g, some)
		m.giveRowsBack(f.Rows...)
		m.waitUntil(g, m.now.Add(unreadPause))
	case len(f.Rows) > 0:
		m.setRows(g, some)
		m.takeRows(g, f.Rows)
	case g.moreRows: // its first row is not known to be committed yet, or had no room
		m.setRows(g, some)
		m.cancelProbe(g)
		drainedAt := g.drainedAt // its rows go on soon
		m.waitUntil(g, m.now.Add(againPause))
		g.drainedAt = drainedAt
	default:
		m.cancelProbe(g)
		if g.rows == unknown {
			m.setRows(g, none)
		}
	}
	m.touch(g)
}

// giveStaleBack ends a stale read: it gives the rows that were read back. They stay in the table,
// because a row in front of them was given back too, or may have been written meanwhile.
func (m *Machine) giveStaleBack(g *group, rows []*inflight.Event) {
	g.staleRead, g.moreRows = false, true
	m.giveRowsBack(rows...)
	m.touch(g)
}

// isOutdated reports whether rows that a walk found may be out of date, because a repeated event
// was written after the walk had read, perhaps in front of these rows. The event's group may be
// forgotten, so the machine does not know which group it is: the rows of all groups wait for the
// next walk.
func (m *Machine) isOutdated(f *Found) bool {
	if m.repeatedAt.IsZero() || f.ReadAt.After(m.repeatedAt) {
		return false
	}
	if m.known.mayHaveRows(f.ExchangeOrTopic) {
		m.noteForgotten(f.ExchangeOrTopic)
	}
	return true
}

const (
	// unreadPause is the wait before a group is read again whose rows cannot be read or placed.
	unreadPause = 5 * time.Second
	// againPause is the wait before a group is read again whose first row is not known to be
	// committed yet, or found no room.
	againPause = 50 * time.Millisecond
)

// takeRows takes rows in hand, and puts the group in turns: fillRows then sends the rows.
func (m *Machine) takeRows(g *group, rows []*inflight.Event) {
	last := rows[len(rows)-1]
	g.lastRead = afterRow(last)
	for _, e := range rows {
		g.hand.push(e)
	}
	g.drainedAt = m.now
	if !g.inTurn {
		g.inTurn = true
		m.turns = append(m.turns, g)
	}
}

// fillRows adds replays and rows in hand to open, the replays first. While new events are ready, it
// fills half a call at most. The groups take turns.
func (m *Machine) fillRows() {
	if m.guarded || m.replays.First == nil && len(m.turns) == 0 {
		return
	}
	limit, room := sink.MaxCallEvents, sink.MaxCallBytes
	if m.ready.First != nil {
		limit, room = limit/2, room/2
	}
	fits := func(e *inflight.Event) bool {
		return len(m.open.items) == 0 || len(m.open.items) < limit && m.open.bytes+e.Size <= room
	}
	m.fillReplays(fits)
	left := m.turns[:0]
	for i, g := range m.turns {
		for g.hand.n > 0 && fits(g.hand.first()) && m.rowMayGo(g, g.hand.first()) {
			e := g.hand.pop()
			g.flying++
			m.touch(g)
			if m.goesApart(g, e) {
				g.firstApart = true
				m.sendApart(e, e.Row.Attempts > 0, g.probing)
				break
			}
			m.open.add(e)
		}
		if g.inTurn = g.hand.n > 0; !g.inTurn {
			m.touch(g)
			continue
		}
		if !fits(g.hand.first()) { // those that had no turn come first
			left = append(append([]*group{}, m.turns[i:]...), left...)
			break
		}
		left = append(left, g)
	}
	m.turns = left
}

// rowMayGo reports whether the first row in hand may go now. If the row may not go for some time,
// the group gives its rows back and waits for that time, or for the end of the pause.
func (m *Machine) rowMayGo(g *group, e *inflight.Event) bool {
	target, paused := m.cfg.Pauses.Target(e.Place)
	if target != g.target {
		m.cancelProbe(g)
	}
	switch {
	case g.front != nil || g.deadLettering || g.replay != nil || g.firstApart || g.flying > 0 && (m.cfg.OneByOne || m.goesApart(g, e)):
		return false
	// a probe goes all the same: a destination waits for it
	case m.goesApart(g, e) && len(m.apart) >= maxApart && !g.probing:
		return false
	case e.Row.NextAttempt.After(m.now):
		if g.flying == 0 {
			m.waitUntil(g, e.Row.NextAttempt)
		}
		return false
	case g.probing:
		return g.flying == 0
	case paused && g.flying > 0:
		return false
	case paused && m.cfg.Pauses.TooOld(e.Place, e.Row.DeferredAt):
		m.deadLetterTooOld(g)
		return false
	case paused:
		m.restBehindPause(g, target)
		return false
	}
	return true
}

// deadLetterTooOld makes dead letters of the first rows in hand that go to a paused destination and
// are too old. With on_dead_letter: block it makes only one, which then blocks the others.
func (m *Machine) deadLetterTooOld(g *group) {
	first := g.hand.pop()
	for e := g.hand.first(); e != nil && !m.cfg.Block && m.cfg.Pauses.TooOld(e.Place, e.Row.DeferredAt); e = g.hand.first() {
		g.hand.pop()
		m.giveResult(g, Result{Event: e, Result: m.tooOldResult(e)})
	}
	m.writeFirstRow(g, Result{Event: first, Result: m.tooOldResult(first)})
}

// maxApart is how many events may be out apart from the calls at a time. The probes of paused
// destinations do not count.
const maxApart = 100

// goesApart reports whether a row is sent apart from the lane's calls, as probes and rows that were
// rejected before are. When the broker rejects an event, it may close the channel or answer late,
// and all other events of the same call would suffer from that.
func (m *Machine) goesApart(g *group, e *inflight.Event) bool {
	return m.cfg.Apart && (g.probing || e.Row.Attempts > 0)
}

// sendApart sends an event apart from the lane's calls. A probe takes none of the maxApart places:
// there is at most one for a destination, and it may be out for long.
func (m *Machine) sendApart(e *inflight.Event, suspect, probe bool) {
	if !probe {
		m.apart[e] = struct{}{}
	}
	e.State = sink.Unknown
	m.out.Probe = append(m.out.Probe, Probe{e, suspect})
}

// fillReplays adds replays and copies to open, or sends them apart. While a replay is out, nothing
// else of its ordering group is.
func (m *Machine) fillReplays(fits func(*inflight.Event) bool) {
	var rest inflight.List
	for m.replays.First != nil {
		e := m.replays.Pop()
		apart := m.cfg.Apart && (e.Request != nil || m.cfg.Pauses.Paused(e.Place))
		if !fits(e) || apart && len(m.apart) >= maxApart {
			rest.Push(e)
			break
		}
		if e.Group != 0 {
			g := m.groupOf(e.Group, e.Place.ExchangeOrTopic)
			if g.replay == nil {
				g.replay = e
			}
			if m.touch(g); g.replay != e || g.front != nil || g.deadLettering || g.flying > 0 || m.open.hasNewOfGroup(e) {
				rest.Push(e)
				continue
			}
			g.flying++
		}
		if apart {
			m.sendApart(e, e.Request != nil, false)
		} else {
			m.open.add(e)
		}
	}
	rest.Join(&m.replays)
	m.replays = rest
}

// giveReplaysBack gives back, at a stop, the replays and copies that were not sent.
func (m *Machine) giveReplaysBack() {
	for m.replays.First != nil {
		e := m.replays.Pop()
		if g := m.groups[e.Group]; g != nil && g.replay == e {
			g.flying++ // handleReplayed takes it off
		}
		m.handleReplayed(e, sink.Outcome{State: sink.Unsent})
	}
}

// handleFinished notes that the result of a row, or of an operator's request, is committed. A group
// in status writing waits for this.
func (m *Machine) handleFinished(r *Result) {
	if r.Request != nil {
		m.handleAnswered(r.Request)
		return
	}
	g := m.groups[r.Event.Row.Group]
	g.pendingResults--
	if g.status == writing && r.Kind != store.Delivered {
		g.status, g.moreRows = idle, true
		if r.Kind == store.Backoff && r.After > 0 {
			m.waitUntil(g, m.now.Add(r.After))
		} // a dead letter that blocks the group is found by the read: it may be closed by now
	}
	m.touch(g)
}

// handleRequest queues an operator's request about a row. The row may be in flight: if the request
// removed it from the table now, the row would be delivered or written once more. So
// carryOutRequests first waits until the group is at rest.
func (m *Machine) handleRequest(f *Found) {
	if m.stopping { // the request is read again by the next leader
		m.out.Finish = append(m.out.Finish, Result{Request: f.Request, Returned: true})
		return
	}
	g := m.groupOf(f.Group, f.ExchangeOrTopic)
	g.requests = append(g.requests, f.Request)
	m.emptyHand(g)
	m.touch(g)
}

// handleAnswered notes that an operator's request was carried out. After the last one of a group,
// the group is read again.
func (m *Machine) handleAnswered(q *store.Request) {
	g := m.groups[q.Row.Group]
	if q.Kind == store.Retry {
		m.cfg.Pauses.Retry(sink.Place{ExchangeOrTopic: q.Row.ExchangeOrTopic, Dest: q.Row.Dest}, m.now)
	}
	if g.pendingResults--; g.pendingResults == 0 {
		g.status = idle
		m.readChanged(g)
	}
}

// readChanged has a group read again after somebody else has changed its rows: an operator, or the
// retry table when it carried out a request.
func (m *Machine) readChanged(g *group) {
	m.endRest(g)
	m.setRows(g, some) // the read tells whether it is blocked
	g.giveReadUp()
	g.moreRows, g.readAgain = true, true
	if g.status == backingOff {
		g.status = idle
	}
	m.touch(g)
}
