// Rows of the table on their way through a lane. While rows of an ordering group are in open, none
// of its new events is; with OneByOne it is one row at a time.

package order

import (
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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

// isReplay reports whether the event is a dead letter that is replayed, or the mirror's copy of
// one.
func isReplay(e *inflight.Event) bool { return e.Request != nil || e.Done != nil }

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

// rowConfirmed handles a row that the broker has. Its confirm may end the pause of its place.
func (m *Machine) rowConfirmed(e *inflight.Event, overtook bool) {
	m.out.Delivered = append(m.out.Delivered, e)
	if isReplay(e) {
		m.replayed(e, sink.Outcome{State: sink.Confirmed})
		return
	}
	g := m.groups[e.Row.Group]
	g.flying--
	g.credit, g.moved = min(g.credit+1, mostCredit), m.now
	if !g.refused && !overtook {
		g.gone = after(e)
	}
	m.finish(g, Result{Event: e, Result: store.Result{Row: e.Row, Kind: store.Delivered}})
	m.probeDone(g, sink.Outcome{State: sink.Confirmed})
	m.touch(g)
}

// replayed handles the outcome of a replay or a copy. One that is not at the broker, or in doubt,
// is given back.
func (m *Machine) replayed(e *inflight.Event, out sink.Outcome) {
	if g := m.groups[e.Group]; g != nil && g.replay == e {
		g.flying--
		g.replay = nil
		m.touch(g)
	}
	e.State, e.Refusal = out.State, out.Fault
	returned := out.State != sink.Confirmed && out.State != sink.Rejected
	m.out.Finish = append(m.out.Finish, Result{Event: e, Returned: returned, Request: e.Request})
}

// takeBack takes the rows behind a rejected one out of open, as far as they were not sent: nothing
// may pass a row that stays in the table.
func (m *Machine) takeBack(rejected *inflight.Event) {
	g := m.groups[rejected.Row.Group]
	if g == nil { // forgotten: nothing of it was left in open
		return
	}
	for _, e := range m.open.items {
		if e.Row != nil && e.Request == nil && e.Row.Group == rejected.Row.Group && e.State == sink.Unsent {
			e.State = sink.Rejected // so that compact removes it from open
			g.flying--
			m.giveBack(e)
		}
	}
	m.touch(g)
}

// tooOld is the result of a row that has waited too long and is not sent. The row keeps its own
// last rejection. If it has none, the result names the fault that paused its place.
func (m *Machine) tooOld(e *inflight.Event) store.Result {
	res := store.Result{Row: e.Row, Kind: store.Dead, Attempts: e.Row.Attempts}
	if f := m.cfg.Pauses.Fault(e.Place); e.Row.Reason == "" && f != nil {
		res.Class, res.Reason, res.Text, res.Destination = f.Class, f.Reason, f.Text, f.Destination
	}
	return res
}
