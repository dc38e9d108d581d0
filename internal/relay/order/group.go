// What a lane knows about one ordering group.

package order

import (
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/pauses"
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

	target  pauses.Target // resting
	at      time.Time     // due
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

// rowsForOne is a compromise: the larger it is, the sooner does a busy group return, and the slower
// do the events of others go until then.
const rowsForOne = 4

// mostCredit bounds the events that are deferred after a time in which few came: without it all
// that came in a long drain could be.
const mostCredit = sink.MaxCallEvents

// drainPatience is how long an event waits behind rows of which none moves: the retry table cannot
// be read, or a row waits for its turn. Then it is deferred, so that the reader goes on.
const drainPatience = 5 * time.Second

// waitsBehindRows reports whether a new event waits in memory until a row has been delivered. It
// does not behind a row that may have no outcome for long.
func (m *Machine) waitsBehindRows(g *group) bool {
	waits := g.draining && g.credit < rowsForOne && !g.probing && !g.alone && m.now.Sub(g.moved) < drainPatience
	if waits && m.lookAt.IsZero() {
		m.lookAt = m.now.Add(drainPatience)
	}
	return waits
}

// lookAtWaiting looks at groups whose events wait behind rows: none waits for 2 × drainPatience.
func (m *Machine) lookAtWaiting() {
	if m.lookAt.IsZero() || m.lookAt.After(m.now) {
		return
	}
	m.lookAt = time.Time{}
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		if g := m.groups[id]; g.draining && g.waiting.First != nil {
			m.touch(g)
		}
	}
}

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
