// The state of an ordering group in a lane, and the one place where a group returns to direct
// delivery. While a group has rows in the table its new events must not be sent, so the lane
// remembers what it knows of the rows, and what the group waits for.

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

// group is what a lane remembers of an ordering group, in addition to the events in ready and open.
// A row without an order is a group of its own.
type group struct {
	id, exchangeOrTopic uint64

	// front is the one new event of the group that is in ready or open. The later new events of the
	// group are in waiting, in order. Without OneByOne front is always nil.
	front   *inflight.Event
	waiting inflight.List
	// replay is a dead letter that is sent as soon as nothing else of the group is on the wire. The
	// events in waiting wait behind it: otherwise a key that is always busy would delay the replay
	// for ever.
	replay *inflight.Event
	// deadLettering is set while a new event is on its way to the dead letters (on_dead_letter:
	// continue). The event counts as on the wire until its row is committed. Otherwise the later
	// events would be sent first, and after a crash in between the event would be sent again behind
	// them, and dead-lettered once more.
	deadLettering bool

	rows   rows // only setRows changes it
	status status

	deferred int // events given to the retry table whose commit is not known yet
	repeated int // those of deferred that the stream repeats, perhaps in front of rows
	hand     hand
	flying   int // rows, or the replay, in open or sent apart
	// pendingResults is how many results, of rows and of requests, were given to the retry table
	// and are not committed yet
	pendingResults int

	// drainedAt is when rows were read last, or a row was delivered. Zero means that no row is
	// being delivered, so new events are deferred. While the group drains, one new event is
	// deferred for rowsForOne rows that were delivered, and the others wait in memory. So the table
	// gets back about a quarter of what leaves it, and the group reaches the end of its rows,
	// however busy it is. When the waiting events fill the in-flight budget, the reader waits too.
	// The reader then goes as fast as events of the group are deferred: with a group of a tenth of
	// the stream ten times as fast.
	drainedAt time.Time
	// credit is how many delivered rows have not paid for a deferred event yet (see rowsForOne); at
	// most mostCredit
	credit int

	// lastRead is the row behind which the next read begins: the last row that was read, or
	// lastGone if the rows behind lastGone were given back. lastGone is the last row that left the
	// table.
	lastRead, lastGone store.RowPosition
	// moreRows means that the table may have rows behind lastRead which a read that is out will not
	// show.
	moreRows bool
	// readAgain means that rows behind lastGone were given back, or have changed. So lastGone
	// stays, and nothing is read until the rows on the wire have their results. The next read
	// begins behind lastGone.
	readAgain bool
	// staleRead means that a read is out whose answer no longer fits. The rows of that answer are
	// given back.
	staleRead bool
	// firstApart means that the group's first row is sent apart. Nothing else of the group is sent
	// until the outcome of this row is known.
	firstApart bool
	// probing means that the group's next row is the probe of target, and is sent although target
	// is paused
	probing bool
	target  Target    // with behindPause: the paused target; with probing: the one that is probed
	dueAt   time.Time // with backingOff: when the group is read again
	// requests are operators' requests about rows, which wait until the group is at rest
	requests []*store.Request

	prev, next *group // in the list of knownGroups; next is also the link of the free list
	inTurn     bool   // it is in Machine.turns
	wasSpecial bool   // it is counted in Machine.specialGroups
	touched    bool   // it is in Machine.touched
}

// rows is what a lane knows of a group's rows in the table. With some and blocked, the group is one
// that waits (GroupRoom.Waiting): its new events are deferred, or with some wait in memory while
// the group drains.
type rows uint8

const (
	none    rows = iota // there are none: new events go
	unknown             // there may be some: the first new event waits for a read
	some
	blocked // behind an open dead letter (on_dead_letter: block): none may go
)

// status is what a group waits for. Events can wait in it with each, see decideNext.
//
//	idle         for rows in hand or on the wire, or a commit; or for nothing
//	toRead       for its turn to be read; it is in Machine.toRead
//	reading      for the rows that were asked for
//	backingOff   for dueAt; it is in Machine.due
//	behindPause  for the end of target's pause, or its turn to probe; Machine.resting counts it
//	writing      for the commit of its first row's result
//	carryingOut  for the commit of what operators asked for
//
// What moves it:
//
//	idle        → toRead       readNextRows: there are rows to read; a new event waits for a read
//	toRead      → reading      askForRows: it is its turn
//	toRead      → idle         stopReading: at a stop, or by the disk guard
//	reading     → idle         handleFound: the answer; giveReadUp: it will not fit any more
//	any         → backingOff   waitUntil: the first row may not go yet, or could not be read
//	any         → behindPause  restBehindPause: the first row goes to a paused target
//	any         → writing      writeFirstRow: the first row was rejected, or is too old
//	any         → carryingOut  carryOutRequests: nothing is on the wire or with the retry table
//	backingOff  → toRead       readDueGroups: dueAt has come
//	backingOff  → idle         readChanged: somebody else has changed its rows
//	behindPause → toRead       readRestedGroups: the pause ended; startProbes: its first row probes
//	behindPause → idle         readChanged; handleFound: a walk found its rows
//	writing     → idle         handleFinished: the result is committed; it may back off then
//	carryingOut → idle         handleAnswered: so is the last request
//
// "any" goes through stopWaiting, which ends what the group did before. So there are rows in hand,
// and a probe, only with idle, toRead and reading. A group that drains is in one of these, or backs
// off over againPause. backingOff, behindPause and writing need rows in the table. After giveReadUp
// the answer still comes (staleRead), and nothing is asked before. Machine.Faults checks all this.
type status uint8

const (
	idle status = iota
	toRead
	reading
	backingOff
	behindPause
	writing
	carryingOut
)

// hand is the rows that were read and are not in open yet, in commit order.
type hand struct {
	list inflight.List
	n    int // how many
}

func (h *hand) first() *inflight.Event { return h.list.First }

func (h *hand) push(e *inflight.Event) {
	h.list.Push(e)
	h.n++
}

func (h *hand) pop() *inflight.Event {
	h.n--
	return h.list.Pop()
}

// hasRequests reports whether operators have requests about rows of the group: new ones, or
// requests that are being carried out.
func (g *group) hasRequests() bool { return len(g.requests) > 0 || g.status == carryingOut }

// readIsOut reports whether a read was asked for and not answered.
func (g *group) readIsOut() bool { return g.status == reading || g.staleRead }

// giveReadUp makes the read that is out, if there is one, a stale read, because its answer would no
// longer fit.
func (g *group) giveReadUp() {
	if g.status == reading {
		g.status, g.staleRead = idle, true
	}
}

// readFromStart makes the next read begin with the group's first row in the table, because a row
// may have been written in front of those that were read.
func (g *group) readFromStart() {
	g.giveReadUp()
	g.readAgain, g.lastGone = true, store.RowPosition{}
}

// clearFront forgets the front of the group if it is this event, which is deferred or dead-lettered
// now.
func (g *group) clearFront(e *inflight.Event) {
	if g.front == e {
		g.front = nil
	}
}

// touch notes that something of the group has changed. The next moveGroupsOn then does what follows
// from the change.
func (m *Machine) touch(g *group) {
	if !g.touched {
		g.touched = true
		m.touched = append(m.touched, g)
	}
}

// isEmpty reports whether nothing of the group is in memory, or on its way from or to the table.
func (g *group) isEmpty() bool {
	return g.front == nil && g.waiting.First == nil && !g.deadLettering && g.replay == nil && !g.hasRequests() &&
		g.deferred == 0 && g.hand.n == 0 && g.flying == 0 && g.pendingResults == 0 && !g.inTurn && !g.readIsOut()
}

// canBeForgotten reports whether the group may be dropped to make room: all that the lane knows of
// it can be read again from the table.
func (g *group) canBeForgotten() bool {
	return g.isEmpty() && !g.probing && !g.touched && g.status != toRead
}

// afterRow is the position from which a read finds the rows behind e.
func afterRow(e *inflight.Event) store.RowPosition {
	return store.RowPosition{Incarnation: e.Row.Incarnation, Position: e.Position}
}

// moveGroupsOn does what follows for each group that was touched, in this order: operators'
// requests are carried out, the group returns to direct delivery, its waiting events move on, its
// rows are read, its state is dropped.
func (m *Machine) moveGroupsOn() {
	for i := 0; i < len(m.touched); i++ { //nolint:intrange // groups are touched meanwhile
		g := m.touched[i]
		g.touched = false
		m.carryOutRequests(g)
		m.returnToDirect(g)
		m.advanceWaiting(g)
		m.readNextRows(g)
		m.keepOrDropGroup(g)
	}
	clear(m.touched)
	m.touched = m.touched[:0]
}

// carryOutRequests gives the requests about a group to the retry table once the group is at rest:
// no row of it may be in flight while a request changes the table.
func (m *Machine) carryOutRequests(g *group) {
	atRest := !g.readIsOut() && g.flying == 0 && g.pendingResults == 0 && g.front == nil
	if len(g.requests) == 0 || g.status != carryingOut && !atRest {
		return
	}
	if g.status != carryingOut {
		m.stopWaiting(g)
		g.status = carryingOut
	}
	for _, q := range g.requests {
		m.giveResult(g, Result{Request: q})
	}
	g.requests = nil
}

// returnToDirect returns a group to direct delivery when nothing of it is left in the table, or on
// the way there. admission.go has the argument.
func (m *Machine) returnToDirect(g *group) {
	if g.rows != some || g.moreRows || g.deferred > 0 || g.hand.n > 0 || g.flying > 0 || g.readAgain || g.hasRequests() || g.staleRead || g.status != idle {
		return
	}
	m.setRows(g, none)
	g.drainedAt = time.Time{}
}

// advanceWaiting moves the waiting events of an ordering group on, as far as possible now: to
// ready, or to the retry table.
func (m *Machine) advanceWaiting(g *group) {
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

// readNextRows queues a read of a group that cannot move without one: because an event waits and
// the group's rows are not known, or because the table has rows and none is in memory. It also
// reads ahead while the last rows in memory are on their way.
func (m *Machine) readNextRows(g *group) {
	switch {
	case g.status != idle || g.staleRead || g.rows == blocked || m.stopping || m.guarded:
	case g.rows == unknown && g.waiting.First != nil,
		g.moreRows && g.hand.n == 0 && g.flying == 0,
		g.moreRows && g.hand.n <= g.flying && !g.readAgain:
		m.queueRead(g)
	}
}

// keepOrDropGroup drops the state of a group when there is nothing to remember of it. Otherwise it
// enters the group in the list of known groups and in the count of special groups, as far as these
// concern it.
func (m *Machine) keepOrDropGroup(g *group) {
	empty := g.isEmpty() && g.status == idle
	switch {
	case g.touched:
		return
	case empty && (g.rows == unknown || g.rows == none && !m.known.mayHaveRows(g.exchangeOrTopic)):
		m.dropGroup(g) // with unknown it was not read: nothing is lost with it
		return
	case g.rows >= some || g.rows == none && empty:
		m.makeRoom(g)
	}
	if special := g.isSpecial(); special != g.wasSpecial {
		g.wasSpecial = special
		if special {
			m.specialGroups++
		} else {
			m.specialGroups--
		}
	}
}

// isSpecial reports whether decideNext may decide otherwise about an event of the group than about
// one whose group has no state.
func (g *group) isSpecial() bool {
	return g.rows != none || g.deadLettering || g.replay != nil || g.hasRequests() || g.flying > 0
}

// setRows sets what is known of a group's rows. Only setRows changes group.rows, so that the count
// of the groups that wait is right.
func (m *Machine) setRows(g *group, to rows) {
	switch {
	case to >= some && g.rows < some:
		m.known.room.waiting.Add(1)
	case to < some && g.rows >= some:
		m.known.room.waiting.Add(-1)
	}
	g.rows = to
}

// queueRead puts a group in the queue of those to be read.
func (m *Machine) queueRead(g *group) {
	if g.status != toRead {
		g.status = toRead
		m.toRead = append(m.toRead, g)
	}
}

// giveRowsBack gives rows back to the retry table, which leaves them there as they are.
func (m *Machine) giveRowsBack(rows ...*inflight.Event) {
	for _, e := range rows {
		m.out.Finish = append(m.out.Finish, Result{Event: e, Returned: true})
	}
}

// emptyHand gives the rows in hand back, because no row of the group may be sent for now. It also
// ends the draining, so new events are deferred instead of waiting in memory.
func (m *Machine) emptyHand(g *group) {
	g.giveReadUp()
	for g.hand.n > 0 {
		m.giveRowsBack(g.hand.pop())
		g.moreRows, g.readAgain = true, true
	}
	g.drainedAt = time.Time{}
}

// stopReading empties the hand of a group, and takes the group out of status toRead, when nothing
// is read any more: at a stop, or while the disk guard is on.
func (m *Machine) stopReading(g *group) {
	if m.emptyHand(g); g.status == toRead {
		g.status, g.moreRows = idle, true
	}
}

// stopWaiting ends whatever the group does or waits for. The caller then gives the group another
// status.
func (m *Machine) stopWaiting(g *group) {
	m.emptyHand(g)
	m.cancelProbe(g)
	m.endRest(g)
	g.status = idle
}

// waitUntil makes a group back off until a time; readDueGroups then has it read.
func (m *Machine) waitUntil(g *group, at time.Time) {
	m.stopWaiting(g)
	g.status, g.dueAt = backingOff, at
	heap.Push(&m.due, dueGroup{at, g.id})
	if len(m.due) > 2*len(m.groups)+1000 { // most are of groups that were forgotten
		m.due = slices.DeleteFunc(m.due, func(d dueGroup) bool {
			g := m.groups[d.group]
			return g == nil || g.status != backingOff || !g.dueAt.Equal(d.at)
		})
		heap.Init(&m.due)
	}
}

// dueGroups is a heap of the groups that back off, the earliest first. An entry is out of date when
// its group no longer has that dueAt.
type dueGroups []dueGroup

// dueGroup says that a group backed off until at.
type dueGroup struct {
	at    time.Time
	group uint64
}

// nextTime is the earliest time in the heap; zero means that no group backs off.
func (d dueGroups) nextTime() (at time.Time) {
	if len(d) > 0 {
		at = d[0].at
	}
	return at
}

func (d dueGroups) Len() int { return len(d) }

func (d dueGroups) Less(i, j int) bool { return d[i].at.Before(d[j].at) }

func (d dueGroups) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *dueGroups) Push(x any) { *d = append(*d, x.(dueGroup)) }

// Pop implements heap.Interface.
func (d *dueGroups) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}

// restingGroups are the groups of a lane that rest behind one paused target, because their first
// row goes there.
type restingGroups struct {
	groups int      // how many rest there now
	order  []uint64 // ids in the order in which they came; some have left, and some came again
}

// restingAt returns the group with this id if it rests behind the target now, else nil.
func (m *Machine) restingAt(id uint64, t Target) *group {
	if g := m.groups[id]; g != nil && g.status == behindPause && g.target == t {
		return g
	}
	return nil
}

// restBehindPause makes a group rest until the pause of its first row's target ends, or until the
// row is the target's probe.
func (m *Machine) restBehindPause(g *group, t Target) {
	m.stopWaiting(g)
	r := m.resting[t]
	if r == nil {
		r = &restingGroups{}
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
	g.status, g.target = behindPause, t
	r.groups++
	r.order = append(r.order, g.id)
	m.cfg.Pauses.AddResting(t, 1)
	at := m.cfg.Pauses.ProbeAt(t)
	if at.IsZero() { // a probe is out
		at = m.now.Add(time.Second)
	}
	if m.probeAt.IsZero() || at.Before(m.probeAt) {
		m.probeAt = at
	}
}

// endRest ends the rest of a group behind a paused target, if it rests. The group is idle then.
func (m *Machine) endRest(g *group) {
	if g.status != behindPause {
		return
	}
	g.status = idle
	r := m.resting[g.target]
	r.groups--
	m.cfg.Pauses.AddResting(g.target, -1)
	if r.groups == 0 {
		delete(m.resting, g.target)
	}
}

// readRestedGroups queues reads of the groups that rested behind pauses which have ended. The
// groups that were forgotten meanwhile are found by a walk.
func (m *Machine) readRestedGroups() {
	version := m.cfg.Pauses.Version()
	if version == m.pausesSeen {
		return
	}
	m.pausesSeen = version
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
				m.endRest(g)
				m.queueRead(g)
			}
		}
	}
	if m.known.anyUnsure() {
		m.known.walkAt = m.now
	}
}

// compareTargets puts targets into an order, so that a simulation with the same seed does the same.
func compareTargets(a, b Target) int {
	return cmp.Or(cmp.Compare(a.ExchangeOrTopic, b.ExchangeOrTopic), cmp.Compare(a.Dest, b.Dest))
}

// startProbes queues, for each paused target whose probe is due, a read of one group that rests
// there. The first row of this group is the probe.
func (m *Machine) startProbes() {
	if len(m.resting) == 0 || m.probeAt.After(m.now) {
		return
	}
	var due []Target
	m.probeAt = m.now.Add(time.Second) // a probe of another lane may be out
	for t := range m.resting {
		switch at := m.cfg.Pauses.ProbeAt(t); {
		case at.IsZero():
		case at.After(m.now):
			m.probeAt = earlierTime(m.probeAt, at)
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
		g := m.resting[t].takeProbeGroup(m, t)
		if g == nil { // each waits for a result of the retry table
			m.cfg.Pauses.ProbeDone(t, sink.Outcome{State: sink.Unsent}, m.now)
			continue
		}
		m.endRest(g)
		g.probing = true
		m.queueRead(g)
	}
}

// takeProbeGroup takes the next group that can be read at once out of the order; nil means that
// each group waits for a result.
func (r *restingGroups) takeProbeGroup(m *Machine, t Target) *group {
	order := r.order
	r.order = nil
	for i, id := range order {
		g := m.restingAt(id, t)
		switch {
		case g == nil:
		case g.pendingResults > 0 || g.flying > 0 || g.repeated > 0:
			r.order = append(r.order, id)
		default:
			r.order = append(order[i+1:], r.order...)
			return g
		}
	}
	return nil
}

// cancelProbe gives up the group's turn to probe, if it has the turn. It tells the registry that
// nothing was sent.
func (m *Machine) cancelProbe(g *group) { m.endProbe(g, sink.Outcome{State: sink.Unsent}) }

// endProbe tells the registry of pauses the outcome of the group's probe, if the group has one out.
func (m *Machine) endProbe(g *group, out sink.Outcome) {
	if g.probing {
		g.probing = false
		m.cfg.Pauses.ProbeDone(g.target, out, m.now)
	}
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
