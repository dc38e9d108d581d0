// Package order is the order machine of a lane: it decides which event goes next, what waits behind
// what, what is deferred, and when an ordering group returns to direct delivery. Machine.Step takes
// what has happened and returns what to do. It has no goroutine, clock, log or I/O; its only
// neighbour is the registry of paused destinations, which all lanes share (pauses.go).
//
// The files follow an event: admission.go lets it into a call, answers.go takes what became of it
// and defers what was rejected, rows.go brings it back from the table, groups.go returns its
// ordering group to direct delivery. Read admission.go first: it says why a later event cannot pass
// a deferred one. The states of a group are a table in groups.go, and faults.go is the same as a
// check.
package order

import (
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Config is the configuration of a Machine. All machines of a line have the same one.
type Config struct {
	// OneByOne: an event is sent after the earlier one of its ordering group was confirmed
	// (ordering key, on a broker that does not append a call as a whole).
	OneByOne bool
	// Apart is set when the sink is a sink.Prober: rows that were rejected before are then sent
	// apart from the lane's calls.
	Apart       bool
	Block       bool // a dead letter blocks the later events of its ordering group
	MaxAttempts int  // of an event that is itself at fault, transiently
	// Spin is the wait after a call that failed at once: a sink may not wait itself.
	Spin func(fails int) time.Duration
	// Backoff is the wait after the attempt-th rejection (from 1) of an event that is itself at
	// fault. Patience is the wait of a row that its destination rejected while the destination is
	// not paused. Neither returns 0.
	Backoff  func(attempt int) time.Duration
	Patience func(age time.Duration) time.Duration
	Pauses   *Pauses
	Room     *GroupRoom // shared by the lanes of a line
	// AfterStep is called at the end of each Step; nil means that nothing is called. Tests check
	// Faults there.
	AfterStep func(*Machine)
}

// Machine is the order machine of one lane. One goroutine uses it.
type Machine struct {
	cfg Config
	now time.Time
	out Actions

	ready inflight.List // new events in the order in which they go
	open  openEvents
	call  call
	// callLimit is how many events a call may have: 1 after a failed call, doubled by each call
	// that confirms something, at most sink.MaxCallEvents.
	callLimit   int
	failedCalls int       // calls in a row without a confirmed or rejected event
	nextCallAt  time.Time // no call is made before; zero: it may be made now

	groups        map[uint64]*group // by id
	spare         *group            // free list
	specialGroups int               // groups for which decideEvent has to look
	stopping      bool              // Input.Stopping came
	guarded       bool              // the disk guard is on: see setGuard

	replays inflight.List // replays and copies that were not sent yet
	// crowded is set when the last call had only rows and left no room for the first event of
	// ready. This event then goes before more rows do.
	crowded bool
	turns   []*group // groups with rows in hand, in turn
	touched []*group // moveGroupsOn has to look at them
	// apart has the events that are sent apart, without the probes of paused destinations
	apart    map[*inflight.Event]struct{}
	toRead   []*group // groups with status toRead
	readsOut int      // wants without an answer
	// lookAtWaitingAt is the time of the next lookAtWaiting; zero means that no event waits behind
	// rows.
	lookAtWaitingAt time.Time
	due             dueGroups
	resting         map[Target]*restingGroups
	probeAt         time.Time // of the next look at the probes of resting
	pausesSeen      uint64    // Pauses.Version when resting was compared with the registry
	known           knownGroups
	// repeated is the position up to which the stream may repeat what an earlier leader has
	// deferred. repeatedAt is when the row of a repeated event was written last: a walk that read
	// before repeatedAt may have missed that row.
	repeated   event.Position
	repeatedAt time.Time
}

// New makes the machine of a lane that has no events yet.
func New(cfg Config) *Machine {
	return &Machine{
		cfg: cfg, callLimit: sink.MaxCallEvents, groups: map[uint64]*group{}, apart: map[*inflight.Event]struct{}{}, resting: map[Target]*restingGroups{}, known: newKnown(cfg.Room),
	}
}

// Step takes what has happened, and returns what the lane does next. The lane calls it after each
// call to the sink and whenever something arrives.
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
		m.judgeOutcomes(in.Outcomes, in.Err)
	}
	for i := range in.Probed {
		m.handleProbed(&in.Probed[i])
	}
	for i := range in.Written {
		m.handleWritten(&in.Written[i])
	}
	m.setGuard(in.Guarded)
	if in.Stopping && !m.stopping {
		m.prepareStop()
	}
	for i := range in.Found {
		m.handleFound(&in.Found[i])
	}
	for i := range in.Finished {
		m.handleFinished(&in.Finished[i])
	}
	if m.stopping {
		m.giveReplaysBack()
	} else if !m.guarded {
		m.readRestedGroups()
		m.readDueGroups()
		m.startProbes()
		m.lookAtWaiting()
	}
	m.moveGroupsOn()
	m.queueArrived(in.Arrived)
	m.moveGroupsOn()
	m.fillCall()
	m.askForRows()
	m.chooseCall()
	m.out.Wake = m.wakeTime()
	if m.cfg.AfterStep != nil {
		m.cfg.AfterStep(m)
	}
	return &m.out
}

// wakeTime is when the machine has something to do although nothing arrives; zero means that only
// something that arrives gives it work.
func (m *Machine) wakeTime() time.Time {
	var at time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if len(m.call.items) > 0 {
		soonest(m.nextCallAt)
	}
	if m.ready.First != nil && len(m.open.items) == 0 {
		soonest(m.now.Add(time.Millisecond)) // what was put aside may go now
	}
	if m.stopping || m.guarded {
		return at
	}
	soonest(m.due.nextTime())
	if len(m.resting) > 0 {
		soonest(m.probeAt)
	}
	soonest(m.known.walkAt)
	soonest(m.lookAtWaitingAt)
	return at
}

// Input is what has happened since the last Step. The machine keeps none of its slices.
type Input struct {
	Now time.Time
	// Outcomes and Err are the outcomes of the call that the last Step asked for, and its error.
	// nil Outcomes mean that there was no call.
	Outcomes []sink.Outcome
	Err      error
	Probed   []Probed
	Written  []Written     // rows of deferred and dead-lettered events are committed
	Finished []Result      // results that are committed
	Found    []Found       // what was found in the tables
	Arrived  inflight.List // new events, in the order of the stream
	Stopping bool          // no row may go any more, and nothing stays in memory behind rows
	Guarded  bool          // the disk guard is on: everything is deferred, nothing is sent or read
}

// Probed is the outcome of an event that was sent apart.
type Probed struct {
	Event   *inflight.Event
	Outcome sink.Outcome
}

// Written says that the row of a deferred or dead-lettered event (Dead) is committed.
type Written struct {
	RowGroup uint64 // the ordering group of the row in the table
	Position event.Position
	Ordered  bool
	Place    sink.Place
	Dead     bool
	DueIn    time.Duration
}

// AllLanes stands for the number of a lane in a Found that every lane gets.
const AllLanes = -1

// Found is one thing that was found in the tables: rows of an ordering group (the answer to a Want,
// or what a walk found), an operator's request about a row, something to send at once, or how far
// the table is known. The machine owns the rows until it gives them back with a Result.
type Found struct {
	Group, ExchangeOrTopic uint64

	Rows    []*inflight.Event // in commit order, without a gap, behind the Want's After
	More    bool              // the table has rows of the group behind these
	Blocked bool              // an open dead letter blocks the group (on_dead_letter: block)
	Failed  bool              // the rows cannot be read or placed now
	Walk    bool              // a walk found the rows; they answer no Want
	ReadAt  time.Time         // of a walk: when its read began, or earlier

	Request *store.Request  // about a row: it needs the group at rest
	Replay  *inflight.Event // a dead letter that an operator replays, or the mirror's copy of one
	Changed bool            // somebody else has changed the group's rows or dead letters

	// Unsure says that the exchange or topic may have rows of any group, and that the stream may
	// repeat events up to Repeated.
	Unsure   bool
	Repeated event.Position
	// WalkBegins says that a walk through the exchange or topic begins: what it finds comes after
	// this Found. WalkEnds says that the walk is complete: every group with rows was found and
	// handed over.
	WalkBegins, WalkEnds bool
}

// Actions is what the lane does after a Step. It is valid until the next Step.
type Actions struct {
	Send      []*event.Event    // the next call, in order; empty: none
	Probe     []Probe           // to be sent apart
	Confirmed []*inflight.Event // new events that the broker has: they are settled
	Delivered []*inflight.Event // rows, replays and copies that the broker has
	Rejected  []Rejection
	// NoRow is how many rejections have no result in the table: a new event is offered again from
	// memory, and a row stays as it is.
	NoRow   int
	Unknown int // events of the last call that are in doubt
	// Defer has the new events whose rows are to be written, in this order: deferred events, and
	// also dead letters, which have Event.Dead set.
	Defer  []*inflight.Event
	Read   []Want
	Walk   []uint64  // exchanges and topics of which ordering groups were forgotten
	Finish []Result  // rows to be written or given back, requests to be carried out
	Ended  bool      // a pause ended: other lanes should look
	Wake   time.Time // Step again then, if nothing arrives; zero: no need
}

// Probe is an event that is sent apart from the lane's calls, by sink.Prober. Suspect tells the
// sink that the event may itself be at fault: a row that was rejected before for a fault of its
// own, or a dead letter that is replayed.
type Probe struct {
	Event   *inflight.Event
	Suspect bool
}

// Rejection is one rejection of an event, for the hooks that count and log it.
type Rejection struct {
	Event   *inflight.Event
	Fault   *sink.Fault
	Attempt int // from 1
}

// Want asks the retry table for rows of an ordering group.
type Want struct {
	store.Want
	ExchangeOrTopic uint64
	// Probe says that one row is enough: it finds out whether a paused destination accepts again.
	Probe bool
}

// Result tells the retry table what becomes of a row that the machine had, or that an operator's
// request may be carried out.
type Result struct {
	// Event is the row, the replay or the copy; nil means that Request is about a row, and may be
	// carried out.
	Event *inflight.Event
	// Returned means that nothing is written: the row stays in the table as it is.
	Returned     bool
	store.Result                // what is written
	Request      *store.Request // Result is then empty; the outcome of a replay is in Event
}

// reset empties the actions for the next Step, and keeps the memory of those lists that nobody else
// keeps.
func (a *Actions) reset() {
	clear(a.Confirmed)
	clear(a.Delivered)
	clear(a.Rejected)
	*a = Actions{
		Confirmed: a.Confirmed[:0], Delivered: a.Delivered[:0], Rejected: a.Rejected[:0],
		Probe: a.Probe[:0], Read: a.Read[:0], Walk: a.Walk[:0],
	}
}

// prepareStop begins a stop, at the first Step with Input.Stopping: the rows in hand and the
// operators' requests are given back, and the events that wait in memory behind rows are deferred.
func (m *Machine) prepareStop() {
	m.stopping = true
	m.toRead = nil
	for _, g := range m.groups {
		for _, q := range g.requests { // what they wait for may never come
			m.out.Finish = append(m.out.Finish, Result{Request: q, Returned: true})
		}
		g.requests = nil
		m.stopReading(g)
		m.touch(g)
	}
}

// setGuard begins or ends the disk guard in this lane. Each Step calls it with Input.Guarded.
//
// Why order holds (I3). The guard only adds a reason to defer, and takes away reasons to send:
// while the guard is on decideNext never answers `goes`. The events that it defers become rows like
// any others, in the order of Defer, and the argument of admission.go does not ask why an event was
// deferred. The events of the last call are deferred too, in the order of the call and before later
// ones of their group. An event in doubt may be at the broker already. It comes again, as after a
// crash, and again in front of the later ones.
//
// Why memory stays flat (I5). A group whose rows are committed only waits for the end of the guard.
// So the lanes know few such groups one by one (guardedRoom). For the others the exchange or topic
// is marked as one that may have rows of any group, and a walk finds them when the guard ends.
func (m *Machine) setGuard(on bool) {
	if m.guarded == on {
		return
	}
	m.guarded = on
	if on {
		m.beginGuard()
	} else {
		m.endGuard()
	}
}

// beginGuard defers the events of the last call, and gives the rows in hand back. The rows that a
// walk under way finds are given back as well, so the end of that walk must not make the lane sure
// of the exchange or topic.
func (m *Machine) beginGuard() {
	for exchangeOrTopic := range m.known.unsure {
		m.known.unsure[exchangeOrTopic] = true
	}
	m.unblockReplays()
	m.deferOpen()
	for _, g := range m.turns {
		g.inTurn = false
	}
	clear(m.turns)
	m.turns, m.toRead = m.turns[:0], nil
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		m.stopReading(g)
		if !g.firstApart { // the outcome of what was sent apart comes
			m.cancelProbe(g)
		}
		m.touch(g)
	}
	m.failedCalls, m.nextCallAt = 0, time.Time{}
}

// endGuard has the groups with rows read again. The groups that were forgotten meanwhile are found
// by a walk.
func (m *Machine) endGuard() {
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		m.touch(m.groups[id])
	}
	if m.known.anyUnsure() {
		m.known.walkAt = m.now
	}
}

// unblockReplays frees, when the guard begins, the groups whose replay is not on the wire.
// Otherwise the group's new events would wait in memory for the replay until the guard ends.
func (m *Machine) unblockReplays() {
	for e := m.replays.First; e != nil; e = e.Next {
		if g := m.groups[e.Group]; g != nil && g.replay == e {
			g.replay = nil
			m.touch(g)
		}
	}
}

// deferOpen empties open when the guard begins. It defers the new events, and gives rows and
// replays back: a row is read again, and a replay in doubt is requested again.
func (m *Machine) deferOpen() {
	items := slices.Clone(m.open.items)
	clear(m.open.items)
	m.open.reset()
	for _, e := range items {
		switch {
		case isReplay(e):
			m.handleReplayed(e, sink.Outcome{State: e.State})
		case e.IsRow():
			m.takeBackRow(e)
		default:
			m.putAside(e, m.decideEvent(e))
		}
	}
}

// takeBackRow takes back a row that was sent, or was about to be, and that has no outcome. The row
// stays in the table, and its group is read again from in front of this row.
func (m *Machine) takeBackRow(e *inflight.Event) {
	g := m.groups[e.Row.Group]
	g.flying--
	g.moreRows, g.readAgain = true, true
	m.giveRowsBack(e)
	m.touch(g)
}
