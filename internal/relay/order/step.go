// Package order is the order machine of a lane: it decides which event goes next, what waits behind
// what, what is deferred, and when an ordering group returns to direct delivery. Machine.Step takes
// what has happened and returns what to do. It has no goroutine, clock, log, lock or I/O; its only
// neighbour is the registry of paused destinations, which all lanes share.
//
// Read decide.go first: it says why a later event cannot pass a deferred one.
package order

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/pauses"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Config is the configuration of a Machine.
type Config struct {
	// OneByOne: an event is sent after the earlier one of its ordering group was confirmed
	// (ordering key, on a broker that does not append a call as a whole).
	OneByOne bool
	// Apart: the sink is a sink.Prober. Rows that were rejected before are sent apart.
	Apart       bool
	Block       bool // a dead letter blocks the later events of its ordering group
	MaxAttempts int  // of an event that is itself at fault, transiently
	// Spin is the wait after a call that failed at once: a sink may not wait itself.
	Spin func(fails int) time.Duration
	// Backoff is the wait after the attempt-th rejection (from 1) of such an event, and Patience
	// that of a row that its destination rejected while the destination is not paused. Neither is
	// 0.
	Backoff  func(attempt int) time.Duration
	Patience func(age time.Duration) time.Duration
	Pauses   *pauses.Registry
	Room     *Room // shared by the lanes of a line
}

// Machine is the order machine of one lane. One goroutine uses it.
type Machine struct {
	cfg Config
	now time.Time
	out Actions

	ready inflight.List // new events in the order in which they go
	open  open
	call  call
	// how many events a call may have: 1 after a failed call, doubled by each that confirms
	limit  int
	fails  int // calls in a row without a confirmed or rejected event
	before time.Time

	groups  map[uint64]*group
	spare   *group // free list
	special int    // groups for which decide has to look
	stop    bool
	guarded bool // see guard

	replays inflight.List
	// the first event of ready found no room in the last call, which had only rows: it goes before
	// more rows
	crowded bool
	turns   []*group // groups with rows in hand, in turn
	touched []*group // moveOn has to look at them
	// the events that are sent apart, without the probes of paused destinations
	apart   map[*inflight.Event]struct{}
	toRead  []*group  // groups to be read
	reading int       // wants without an answer
	lookAt  time.Time // of the next look at events that wait behind rows; zero: none waits
	due     dues
	resting map[pauses.Target]*resting
	probeAt time.Time // of the next look at the probes of resting
	seen    uint64    // the version of the registry that resting was compared with
	known   known
	// up to here the stream may repeat what an earlier leader has deferred
	repeated event.Position
	// when the row of such an event was written last: a walk that read before may have missed it
	repeatedAt time.Time
}

// New makes a machine.
func New(cfg Config) *Machine {
	return &Machine{
		cfg: cfg, limit: sink.MaxCallEvents, groups: map[uint64]*group{}, apart: map[*inflight.Event]struct{}{}, resting: map[pauses.Target]*resting{}, known: newKnown(cfg.Room),
	}
}

// Step takes what has happened, and returns what to do.
//
// The order of its parts matters in three places. What was read is taken before what arrived: so an
// event never goes past rows that are known to be there. What was written is taken before what was
// read: so an answer that does not show a row yet is not taken for the end of the group. And what
// was read is taken before what is finished: the retry table reads and deletes in turn, so a row
// that was read before it was deleted still has its pending result, and is not sent once more.
func (m *Machine) Step(in *Input) *Actions {
	m.now = in.Now
	m.out.reset()
	if in.Outcomes != nil {
		m.judge(in.Outcomes, in.Err)
	}
	for i := range in.Probed {
		m.probed(&in.Probed[i])
	}
	for i := range in.Written {
		m.written(&in.Written[i])
	}
	m.guard(in.Guarded)
	if in.Stopping && !m.stop {
		m.stopFeeding()
	}
	for i := range in.Found {
		m.found(&in.Found[i])
	}
	for i := range in.Finished {
		m.finished(&in.Finished[i])
	}
	if m.stop {
		m.giveReplaysBack()
	} else if !m.guarded {
		m.pausesEnded()
		m.takeDue()
		m.probe()
		m.lookAtWaiting()
	}
	m.moveOn()
	m.arrive(in.Arrived)
	m.moveOn()
	m.fill()
	m.read()
	m.choose()
	m.out.Wake = m.wake()
	return &m.out
}

// wake is when the machine has something to do if nothing arrives.
func (m *Machine) wake() time.Time {
	var at time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if len(m.call.items) > 0 {
		soonest(m.before)
	}
	if m.ready.First != nil && len(m.open.items) == 0 {
		soonest(m.now.Add(time.Millisecond)) // what was put aside may go now
	}
	if m.stop || m.guarded {
		return at
	}
	soonest(m.due.next())
	if len(m.resting) > 0 {
		soonest(m.probeAt)
	}
	soonest(m.known.at)
	soonest(m.lookAt)
	return at
}

// stopFeeding prepares a stop: rows in hand go back, and the events that are kept in memory behind
// rows are deferred.
func (m *Machine) stopFeeding() {
	m.stop = true
	m.toRead = nil
	for _, g := range m.groups {
		for _, q := range g.requests { // what they wait for may never come
			m.out.Finish = append(m.out.Finish, Result{Request: q, Returned: true})
		}
		g.requests = nil
		if m.notNow(g); g.status == toRead {
			g.status, g.more = idle, true
		}
		m.touch(g)
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

// pausesEnded lets the groups be read that rested behind a pause which has ended. Groups that were
// forgotten are found by a walk.
func (m *Machine) pausesEnded() {
	version := m.cfg.Pauses.Version()
	if version == m.seen {
		return
	}
	m.seen = version
	var ended []pauses.Target
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

func compareTargets(a, b pauses.Target) int {
	return cmp.Or(cmp.Compare(a.ExchangeOrTopic, b.ExchangeOrTopic), cmp.Compare(a.Dest, b.Dest))
}

// probe reads the first row of one group for each paused target that is due.
func (m *Machine) probe() {
	if len(m.resting) == 0 || m.probeAt.After(m.now) {
		return
	}
	var due []pauses.Target
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
