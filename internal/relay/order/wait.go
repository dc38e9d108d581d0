// What a group with rows waits for: its turn to be read, a time, the end of a pause.

package order

import (
	"container/heap"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/pauses"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// toBeRead puts a group in the queue of those to be read.
func (m *Machine) toBeRead(g *group) {
	if g.status != toRead {
		g.status = toRead
		m.toRead = append(m.toRead, g)
	}
}

// readAhead reads the next rows of a group while the last ones are on their way.
func (m *Machine) readAhead(g *group) {
	if g.more && g.status == idle && g.inHand <= g.flying && !g.refused && !g.blocked && !m.stop && !m.guarded {
		m.toBeRead(g)
	}
}

// giveBack returns rows that stay in the table as they are.
func (m *Machine) giveBack(rows ...*inflight.Event) {
	for _, e := range rows {
		m.out.Finish = append(m.out.Finish, Result{Event: e, Returned: true})
	}
}

// notNow is called when no row of a group may go for now: the rows in hand are given back, and new
// events no longer wait in memory behind them.
func (m *Machine) notNow(g *group) {
	g.stale = g.wanted
	for g.hand.First != nil {
		m.giveBack(g.hand.Pop())
		g.more, g.inHand = true, g.inHand-1
		g.refused = true // what is read next begins in front of these
	}
	g.draining = false
}

// stopWaiting ends what the group does and waits for, because it waits for something else now.
func (m *Machine) stopWaiting(g *group) {
	m.notNow(g)
	m.notProbing(g)
	m.unrest(g)
	g.status = idle
}

// waitUntil makes a group wait for a time.
func (m *Machine) waitUntil(g *group, at time.Time) {
	m.stopWaiting(g)
	g.status, g.at = due, at
	heap.Push(&m.due, dueGroup{at, g.id})
	if len(m.due) > 2*len(m.groups)+1000 { // most are of groups that were forgotten
		m.due = slices.DeleteFunc(m.due, func(d dueGroup) bool {
			g := m.groups[d.group]
			return g == nil || g.status != due || !g.at.Equal(d.at)
		})
		heap.Init(&m.due)
	}
}

// dues are the groups that wait for a time; an entry counts while its group has that time.
type dues []dueGroup

type dueGroup struct {
	at    time.Time
	group uint64
}

func (d dues) next() (at time.Time) {
	if len(d) > 0 {
		at = d[0].at
	}
	return at
}

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *dues) Push(x any) { *d = append(*d, x.(dueGroup)) }

// Pop implements heap.Interface.
func (d *dues) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}

// resting are the groups whose first row goes to a paused target.
type resting struct {
	groups int
	// in the order in which they came; some have left, and some have come again
	order []uint64
}

// restingAt is the group if it rests behind the target, else nil.
func (m *Machine) restingAt(id uint64, t pauses.Target) *group {
	if g := m.groups[id]; g != nil && g.status == rests && g.target == t {
		return g
	}
	return nil
}

// rest makes a group wait for the end of a pause.
func (m *Machine) rest(g *group, t pauses.Target) {
	m.stopWaiting(g)
	r := m.resting[t]
	if r == nil {
		r = &resting{}
		m.resting[t] = r
	}
	if len(r.order) > 2*r.groups+100 {
		seen := map[uint64]bool{}
		r.order = slices.DeleteFunc(r.order, func(id uint64) bool {
			gone := m.restingAt(id, t) == nil || seen[id]
			seen[id] = true
			return gone
		})
	}
	g.status, g.target = rests, t
	r.groups++
	r.order = append(r.order, g.id)
	m.cfg.Pauses.Candidates(t, 1)
	at := m.cfg.Pauses.ProbeAt(t)
	if at.IsZero() { // a probe is out
		at = m.now.Add(time.Second)
	}
	if m.probeAt.IsZero() || at.Before(m.probeAt) {
		m.probeAt = at
	}
}

// toProbe takes the next group out of the order that can be read at once; nil: none can.
func (r *resting) toProbe(m *Machine, t pauses.Target) *group {
	order := r.order
	r.order = nil
	for i, id := range order {
		g := m.restingAt(id, t)
		switch {
		case g == nil:
		case g.pending > 0 || g.flying > 0 || g.repeated > 0:
			r.order = append(r.order, id)
		default:
			r.order = append(order[i+1:], r.order...)
			return g
		}
	}
	return nil
}

// unrest takes a group out of resting.
func (m *Machine) unrest(g *group) {
	if g.status != rests {
		return
	}
	g.status = idle
	r := m.resting[g.target]
	r.groups--
	m.cfg.Pauses.Candidates(g.target, -1)
	if r.groups == 0 {
		delete(m.resting, g.target)
	}
}

// notProbing is called when a group that was to be a probe is none: nothing was sent.
func (m *Machine) notProbing(g *group) { m.probeDone(g, sink.Outcome{State: sink.Unsent}) }

// probeDone reports the outcome of a group's probe, if its first row is one.
func (m *Machine) probeDone(g *group, out sink.Outcome) {
	if g.probing {
		g.probing = false
		m.cfg.Pauses.ProbeDone(g.target, out, m.now)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
