// An ordering group: what a lane knows of it, what it waits for, and what follows when something of
// it has changed. This is where a group returns to direct delivery.

package order

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// group is what a lane has in memory of an ordering group, in addition to the events in ready and
// open. A row without an order is a group of its own.
type group struct {
	id, exchangeOrTopic uint64

	// front is the one new event of the group that is in ready or open. It is set with OneByOne
	// only. Later events are in waiting, in order.
	front   *inflight.Event
	waiting inflight.List
	// dying is set while a new event is on its way to the dead letters (on_dead_letter: continue).
	// The event counts as on the wire until its row is committed. Otherwise the later events would
	// be sent first, and after a crash in between the event would be sent again behind them, and
	// dead-lettered once more.
	dying bool
	// replay is a dead letter that goes as soon as nothing else of the group is on the wire. What
	// waits, waits behind it: otherwise a key that is always busy would delay the replay for ever.
	replay *inflight.Event

	rows   rows
	status status
	// blocked: an open dead letter blocks the group (on_dead_letter: block)
	blocked bool
	// draining: rows go. For rowsForOne of them that are delivered one new event is deferred, and
	// the others wait in memory. So about a quarter of the rows that go comes again, and the
	// group reaches its end, however busy it is. When the waiting ones fill the in-flight budget
	// the reader waits, and goes on as fast as events of the group are deferred: with a group of a
	// tenth of the stream ten times as fast.
	draining bool
	moved    time.Time // when rows of the group were read, or one was delivered
	credit   int       // rows that were delivered, and for which no event was deferred
	repeated int       // of those, events that the stream repeats: they may be in front of rows
	// events of the group that the retry table has and that are not committed
	deferred int
	hand     inflight.List // rows that were read and are not in open
	inHand   int
	flying   int // rows, or the replay, in open
	pending  int // results that are not committed, and requests that are carried out
	// more: the table may have rows behind the last one that was read
	more bool
	news bool // a row was committed since the read was asked for
	// read is the last row that was read, or the last that left the table if those behind it were
	// given back; gone is the last row that left the table. A read begins behind read.
	read, gone store.After
	// wanted: a read was asked for and not answered; stale: its answer no longer fits
	wanted, stale bool
	// refused: a row was rejected. gone stays in front of it, and nothing is read until the rows
	// that were on the wire with it have their results.
	refused bool

	target  Target    // resting
	at      time.Time // due
	probing bool
	// its first row is sent apart: nothing else of the group goes until its outcome is known
	alone bool
	// operators' requests about rows, which wait for the group to be at rest
	requests []*store.Request

	counted    bool   // in known.list
	prev, next *group // there; next is also the link of the free list
	inTurn     bool
	wasSpecial bool
	wasWaiting bool
	touched    bool // in machine.touched
}

// rows is what is known of a group's rows in the table.
type rows uint8

const (
	none rows = iota
	unknown
	some
)

// status is what a group with rows waits for. (With unknown it waits for a read, too.)
type status uint8

const (
	idle    status = iota // for rows in hand or on the wire, or for a commit
	toRead                // for its turn to be read
	reading               // for the rows
	due                   // for a time
	rests                 // for the end of a pause
	writing               // for the commit of its first row's result
	held                  // for the end of operators' requests
)

// asked reports whether operators have requests about rows of the group.
func (g *group) asked() bool { return len(g.requests) > 0 || g.status == held }

// release clears front if it is the event.
func (g *group) release(e *inflight.Event) {
	if g.front == e {
		g.front = nil
	}
}

// touch notes that something of the group has changed. moveOn then looks what follows.
func (m *Machine) touch(g *group) {
	if !g.touched {
		g.touched = true
		m.touched = append(m.touched, g)
	}
}

// isEmpty reports whether nothing of the group is in memory, or on its way from or to the table.
func (g *group) isEmpty() bool {
	return g.front == nil && g.waiting.First == nil && !g.dying && g.replay == nil && !g.asked() &&
		g.deferred == 0 && g.inHand == 0 && g.flying == 0 && g.pending == 0 && !g.inTurn && !g.wanted
}

// canBeForgotten reports whether what the lane knows of the group can be read again.
func (g *group) canBeForgotten() bool {
	return g.isEmpty() && !g.probing && !g.touched && g.status != toRead && g.status != writing
}

func after(e *inflight.Event) store.After {
	return store.After{Incarnation: e.Row.Incarnation, Position: e.Position}
}

// moveOn looks at each group that was touched, and does what follows: an operator's request is
// carried out, the group returns to direct delivery, its waiting events move on, its rows are read,
// its state is dropped.
func (m *Machine) moveOn() {
	for i := 0; i < len(m.touched); i++ { //nolint:intrange // groups are touched meanwhile
		g := m.touched[i]
		g.touched = false
		m.carryOut(g)
		m.settle(g)
		m.advance(g)
		m.readNext(g)
		m.keepOrDrop(g)
	}
	clear(m.touched)
	m.touched = m.touched[:0]
}

// carryOut lets the requests of a group be carried out once the group is at rest.
func (m *Machine) carryOut(g *group) {
	atRest := !g.wanted && g.status != writing && g.flying == 0 && g.pending == 0 && g.front == nil
	if len(g.requests) == 0 || g.status != held && !atRest {
		return
	}
	if g.status != held {
		m.stopWaiting(g)
		g.status = held
	}
	for _, q := range g.requests {
		m.finish(g, Result{Request: q})
	}
	g.requests = nil
}

// settle returns a group to direct delivery when nothing of it is left in the table, or on the way
// there. admission.go has the argument.
func (m *Machine) settle(g *group) {
	if g.rows != some || g.more || g.deferred > 0 || g.inHand > 0 || g.flying > 0 || g.blocked || g.refused || g.asked() || g.wanted || g.status != idle {
		return
	}
	g.rows, g.draining = none, false
}

// advance moves the waiting events of an ordering group on, as far as possible now: to ready, or to
// the retry table.
func (m *Machine) advance(g *group) {
	for g.front == nil && g.waiting.First != nil {
		switch m.decideNext(g.waiting.First, g) {
		case waits:
			return
		case defers:
			m.deferEvent(g.waiting.Pop())
		case goes:
			if !m.cfg.OneByOne { // all of them go, before those in ready, which came later
				m.ready.PushAllFront(&g.waiting)
				return
			}
			g.front = g.waiting.Pop()
			m.ready.Push(g.front)
		}
	}
}

// readNext lets a group be read of which nothing else can come: its rows are not known and an event
// waits, or it has rows and none is in memory.
func (m *Machine) readNext(g *group) {
	switch {
	case g.status != idle || g.wanted || g.blocked || m.stop || m.guarded:
	case g.rows == unknown && g.waiting.First != nil, g.rows == some && g.more && g.inHand == 0 && g.flying == 0:
		m.toBeRead(g)
	default:
		m.readAhead(g)
	}
}

// keepOrDrop drops the state of a group in which nothing is set, or counts it.
func (m *Machine) keepOrDrop(g *group) {
	empty := g.isEmpty() && !g.blocked && g.status == idle
	switch {
	case g.touched:
		return
	case empty && (g.rows == unknown || g.rows == none && !m.known.mayHaveRows(g.exchangeOrTopic)):
		m.drop(g) // with unknown it was not read: nothing is lost with it
		return
	case g.rows == some || g.rows == none && empty || g.blocked:
		m.makeRoom(g)
	}
	m.countWaiting(g, g.rows == some || g.blocked)
	special := g.rows != none || g.dying || g.replay != nil || g.asked() || g.blocked || g.flying > 0
	if special != g.wasSpecial {
		g.wasSpecial = special
		if special {
			m.special++
		} else {
			m.special--
		}
	}
}

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

func (d dues) Len() int { return len(d) }

func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }

func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

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
func (m *Machine) restingAt(id uint64, t Target) *group {
	if g := m.groups[id]; g != nil && g.status == rests && g.target == t {
		return g
	}
	return nil
}

// rest makes a group wait for the end of a pause.
func (m *Machine) rest(g *group, t Target) {
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

// pausesEnded lets the groups be read that rested behind a pause which has ended. Groups that were
// forgotten are found by a walk.
func (m *Machine) pausesEnded() {
	version := m.cfg.Pauses.Version()
	if version == m.seen {
		return
	}
	m.seen = version
	var ended []Target
	for t := range m.resting {
		if !m.cfg.Pauses.IsPaused(t) {
			ended = append(ended, t)
		}
	}
	slices.SortFunc(ended, compareTargets)
	for _, t := range ended {
		for _, id := range m.resting[t].order {
			if g := m.restingAt(id, t); g != nil {
				m.unrest(g)
				m.toBeRead(g)
			}
		}
	}
	if m.known.any() {
		m.known.at = m.now
	}
}

func compareTargets(a, b Target) int {
	return cmp.Or(cmp.Compare(a.ExchangeOrTopic, b.ExchangeOrTopic), cmp.Compare(a.Dest, b.Dest))
}

// probe reads the first row of one group for each paused target that is due.
func (m *Machine) probe() {
	if len(m.resting) == 0 || m.probeAt.After(m.now) {
		return
	}
	var due []Target
	m.probeAt = m.now.Add(time.Second) // a probe of another lane may be out
	for t := range m.resting {
		switch at := m.cfg.Pauses.ProbeAt(t); {
		case at.IsZero():
		case at.After(m.now):
			m.probeAt = earlier(m.probeAt, at)
		default:
			due = append(due, t)
		}
	}
	// to look at many takes its time
	if soonest := m.now.Add(time.Duration(len(m.resting)) * 100 * time.Microsecond); m.probeAt.Before(soonest) {
		m.probeAt = soonest
	}
	slices.SortFunc(due, compareTargets)
	for _, t := range due {
		if !m.cfg.Pauses.TakeProbe(t, m.now) {
			continue
		}
		g := m.resting[t].toProbe(m, t)
		if g == nil { // each waits for a result of the retry table
			m.cfg.Pauses.ProbeDone(t, sink.Outcome{State: sink.Unsent}, m.now)
			continue
		}
		m.unrest(g)
		g.probing = true
		m.toBeRead(g)
	}
}

// toProbe takes the next group out of the order that can be read at once; nil: none can.
func (r *resting) toProbe(m *Machine, t Target) *group {
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
