// Rows of the table on their way through a lane: their commit, the read that finds them, the call
// or probe that has them, and the result. While rows of an ordering group are in open, none of its
// new events is; with OneByOne it is one row at a time. Operators' requests about rows are found,
// too: they are carried out while their ordering group is at rest.

package order

import (
	"container/heap"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// written takes the report that the row of a deferred event is committed.
func (m *Machine) written(w *Written) {
	g := m.groups[w.RowGroup]
	switch {
	case !w.Ordered && (w.Dead || m.stop):
		return
	case !w.Ordered: // it has no order: its row is a group of its own
		g = m.group(w.RowGroup, w.Place.ExchangeOrTopic)
		g.rows = some
		// The stream has repeated it after its first row was delivered: this row is not behind that
		// one, where the next read would begin.
		if g.read != (store.After{}) {
			g.refused, g.stale, g.gone = true, g.wanted, store.After{}
		}
	case w.Dead && !m.cfg.Block:
		g.dying = false
		m.touch(g)
		return
	default:
		g.deferred--
	}
	if w.Ordered && !m.repeated.Less(w.Position) { // it may be in front of rows that were read
		g.repeated--
		m.repeatedAt = m.now
		g.refused, g.stale, g.gone = true, g.wanted, store.After{}
	}
	if w.Dead {
		g.blocked, g.draining = true, false
	} else {
		g.more, g.news = true, true
		m.firstOf(g, w)
	}
	m.touch(g)
}

// firstOf decides what a group waits for whose first row in the table may be this one.
func (m *Machine) firstOf(g *group, w *Written) {
	switch target, paused := m.cfg.Pauses.Target(w.Place); {
	case g.status != idle || m.stop || m.guarded || g.blocked:
	case g.inHand+g.flying > 0 || g.refused: // moveOn reads on
	case w.DueIn > 0:
		m.waitUntil(g, m.now.Add(w.DueIn))
	case paused:
		m.rest(g, target)
	default:
		m.toBeRead(g)
	}
}

// maxWants bounds the wants without an answer.
const maxWants = 500

// read asks for rows. A group with a rejected row is read again only when the results of the rows
// that were on the wire with it are committed: it begins in front of these.
func (m *Machine) read() {
	if m.guarded {
		return
	}
	rest := m.toRead[:0]
	for i, g := range m.toRead {
		switch {
		case g.status != toRead: // something else came up
			continue
		case m.reading >= maxWants:
			rest = append(rest, m.toRead[i:]...)
		case g.wanted || g.repeated > 0 || g.refused && (g.flying > 0 || g.pending > 0 || g.inHand > 0):
			rest = append(rest, g)
			continue
		default:
			if g.refused {
				g.refused, g.read = false, g.gone
			}
			g.status, g.wanted, g.news = reading, true, false
			m.reading++
			m.out.Read = append(m.out.Read, Want{Want: store.Want{Group: g.id, After: g.read}, ExchangeOrTopic: g.exchangeOrTopic, Probe: g.probing})
			continue
		}
		break
	}
	clear(m.toRead[len(rest):])
	m.toRead = rest
	m.askForWalks()
}

// takeDue lets groups be read whose time has come.
func (m *Machine) takeDue() {
	for len(m.due) > 0 && !m.due[0].at.After(m.now) {
		d := heap.Pop(&m.due).(dueGroup)
		if g := m.groups[d.group]; g != nil && g.status == due && g.at.Equal(d.at) {
			m.toBeRead(g)
		}
	}
}

// found takes rows that were read.
func (m *Machine) found(f *Found) {
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
		m.walkBegins(f.ExchangeOrTopic)
		return
	case f.WalkEnds:
		m.walkEnds(f.ExchangeOrTopic)
		return
	case f.Request != nil:
		m.requested(f)
		return
	case f.Changed:
		if g = m.group(f.Group, f.ExchangeOrTopic); g.status != held {
			m.wakeUp(g)
		}
		return
	case !f.Walk:
		m.reading--
		g.wanted = false
		if g.stale {
			m.leaveStale(g, f.Rows)
			return
		}
		g.status = idle
	case m.isOutdated(f):
		m.giveBack(f.Rows...)
		return
	case m.stop || m.guarded || g != nil && (g.wanted || !(g.rows == unknown && g.status == idle || g.status == rests && g.flying == 0 && g.pending == 0)):
		m.giveBack(f.Rows...) // the group goes its own way
		return
	default:
		g = m.group(f.Group, f.ExchangeOrTopic)
		m.unrest(g)
		g.news = true
	}
	g.more = f.More || g.news
	g.blocked = f.Blocked
	switch {
	case g.asked() || m.stop || f.Blocked:
		m.giveBack(f.Rows...)
		g.more = true
		if f.Blocked {
			g.rows = some
		}
		m.notNow(g)
		m.notProbing(g)
	case f.Failed: // a row is there, so new events are deferred behind it
		g.rows = some
		m.giveBack(f.Rows...)
		m.waitUntil(g, m.now.Add(unreadPause))
	case len(f.Rows) > 0:
		g.rows = some
		m.take(g, f.Rows)
	case g.more: // its first row is not known to be committed yet, or had no room
		g.rows = some
		m.notProbing(g)
		draining := g.draining // its rows go on soon
		m.waitUntil(g, m.now.Add(againPause))
		g.draining = draining
	default:
		m.notProbing(g)
		if g.rows == unknown {
			g.rows = none
		}
	}
	m.touch(g)
}

// leaveStale gives rows back because something was rejected while they were read: what is behind it
// stays where it is.
func (m *Machine) leaveStale(g *group, rows []*inflight.Event) {
	g.stale, g.more = false, true
	m.giveBack(rows...)
	if g.status == reading {
		g.status = idle
	}
	m.touch(g)
}

// isOutdated reports whether a repeated row may have been written in front of what a walk found,
// after the walk read. Its group may be forgotten, so all such rows wait for the next walk.
func (m *Machine) isOutdated(f *Found) bool {
	if m.repeatedAt.IsZero() || f.ReadAt.After(m.repeatedAt) {
		return false
	}
	if m.known.mayHaveRows(f.ExchangeOrTopic) {
		m.forgot(f.ExchangeOrTopic)
	}
	return true
}

const (
	// of a group that cannot be read or placed
	unreadPause = 5 * time.Second
	// of a group whose first row is not known to be committed yet, or had no room
	againPause = 50 * time.Millisecond
)

// take takes rows in hand. The first of them decides what the group waits for.
func (m *Machine) take(g *group, rows []*inflight.Event) {
	last := rows[len(rows)-1]
	g.read = after(last)
	for _, e := range rows {
		g.hand.Push(e)
		g.inHand++
	}
	g.draining, g.moved = true, m.now
	m.turn(g)
}

// turn puts a group with rows in hand in the queue of those whose rows go.
func (m *Machine) turn(g *group) {
	if !g.inTurn && g.inHand > 0 {
		g.inTurn = true
		m.turns = append(m.turns, g)
	}
}

// fillRows adds rows to open: replays first, and half a call at most while new events are ready.
// The groups take turns.
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
		for g.hand.First != nil && fits(g.hand.First) && m.mayGo(g, g.hand.First) {
			e := g.hand.Pop()
			g.inHand--
			g.flying++
			m.touch(g)
			if m.goesApart(g, e) {
				g.alone = true
				m.sendApart(e, e.Row.Attempts > 0, g.probing)
				break
			}
			m.open.add(e)
		}
		if g.inTurn = g.hand.First != nil; !g.inTurn {
			m.touch(g)
			continue
		}
		if !fits(g.hand.First) { // those that had no turn come first
			left = append(append([]*group{}, m.turns[i:]...), left...)
			break
		}
		left = append(left, g)
	}
	m.turns = left
}

// mayGo reports whether the first row in hand may go now. Where it may not go for long, the group
// gives its rows back and waits.
func (m *Machine) mayGo(g *group, e *inflight.Event) bool {
	target, paused := m.cfg.Pauses.Target(e.Place)
	if target != g.target {
		m.notProbing(g)
	}
	switch {
	case g.front != nil || g.dying || g.replay != nil || g.alone || g.flying > 0 && (m.cfg.OneByOne || m.goesApart(g, e)):
		return false
	// a probe goes all the same: a destination waits for it
	case m.goesApart(g, e) && len(m.apart) >= maxAlone && !g.probing:
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
		m.writeTooOld(g)
		return false
	case paused:
		m.rest(g, target)
		return false
	}
	return true
}

// writeTooOld makes dead letters of the first rows in hand that are paused and too old. With
// on_dead_letter: block the first one blocks the others.
func (m *Machine) writeTooOld(g *group) {
	first := g.hand.Pop()
	g.inHand--
	for e := g.hand.First; e != nil && !m.cfg.Block && m.cfg.Pauses.TooOld(e.Place, e.Row.DeferredAt); e = g.hand.First {
		g.hand.Pop()
		g.inHand--
		m.finish(g, Result{Event: e, Result: m.tooOld(e)})
	}
	m.write(g, Result{Event: first, Result: m.tooOld(first)})
}

// maxAlone is how many events are sent apart at a time, without the probes of paused destinations.
const maxAlone = 100

// goesApart reports whether a row is sent apart from the lane's calls: one that was rejected before
// may be rejected again, and what the broker then closes or delays would be that of all others.
func (m *Machine) goesApart(g *group, e *inflight.Event) bool {
	return m.cfg.Apart && (g.probing || e.Row.Attempts > 0)
}

// sendApart sends an event apart from the lane's calls. A probe takes none of the maxAlone places:
// there is one of a destination, and it may be out for long.
func (m *Machine) sendApart(e *inflight.Event, suspect, probe bool) {
	if !probe {
		m.apart[e] = struct{}{}
	}
	e.State = sink.Unknown
	m.out.Probe = append(m.out.Probe, Probe{e, suspect})
}

// fillReplays adds replays and copies to open. A replay goes alone in its ordering group.
func (m *Machine) fillReplays(fits func(*inflight.Event) bool) {
	var rest inflight.List
	for m.replays.First != nil {
		e := m.replays.Pop()
		apart := m.cfg.Apart && (e.Request != nil || m.cfg.Pauses.Paused(e.Place))
		if !fits(e) || apart && len(m.apart) >= maxAlone {
			rest.Push(e)
			break
		}
		if e.Group != 0 {
			g := m.group(e.Group, e.Place.ExchangeOrTopic)
			if g.replay == nil {
				g.replay = e
			}
			if m.touch(g); g.replay != e || g.front != nil || g.dying || g.flying > 0 || m.open.has(e) {
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

// giveReplaysBack gives back what was not sent.
func (m *Machine) giveReplaysBack() {
	for m.replays.First != nil {
		e := m.replays.Pop()
		if g := m.groups[e.Group]; g != nil && g.replay == e {
			g.flying++ // replayed takes it off
		}
		m.replayed(e, sink.Outcome{State: sink.Unsent})
	}
}

// finished takes a result that is committed.
func (m *Machine) finished(r *Result) {
	if r.Request != nil {
		m.answered(r.Request)
		return
	}
	g := m.groups[r.Event.Row.Group]
	g.pending--
	if g.status == writing && r.Kind != store.Delivered {
		g.status, g.more = idle, true
		if r.Kind == store.Backoff && r.After > 0 {
			m.waitUntil(g, m.now.Add(r.After))
		} // a dead letter that blocks the group is found by the read: it may be closed by now
	}
	m.touch(g)
}

// requested takes an operator's request about a row. The row may be in flight: if it left the table
// now, it would be delivered or written once more. So the group comes to rest first.
func (m *Machine) requested(f *Found) {
	if m.stop { // the request is read again by the next leader
		m.out.Finish = append(m.out.Finish, Result{Request: f.Request, Returned: true})
		return
	}
	g := m.group(f.Group, f.ExchangeOrTopic)
	g.requests = append(g.requests, f.Request)
	m.notNow(g)
	m.touch(g)
}

// answered takes a request that was carried out.
func (m *Machine) answered(q *store.Request) {
	g := m.groups[q.Row.Group]
	if q.Kind == store.Retry {
		m.cfg.Pauses.Retry(sink.Place{ExchangeOrTopic: q.Row.ExchangeOrTopic, Dest: q.Row.Dest}, m.now)
	}
	if g.pending--; g.pending == 0 {
		g.status = idle
		m.wakeUp(g)
	}
}

// wakeUp reads a group again whose rows somebody else has changed.
func (m *Machine) wakeUp(g *group) {
	m.unrest(g)
	g.blocked = false // the read tells
	g.more, g.rows, g.refused, g.stale = true, some, true, g.wanted
	if g.status == due {
		g.status = idle
	}
	m.touch(g)
}
