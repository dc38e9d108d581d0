// What was found in the tables, and what was written there. Operators' requests about rows are
// found too: they are carried out while their ordering group is at rest.

package order

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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
