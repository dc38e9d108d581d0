package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The names of what there is one of.
const (
	slot   = "slot"
	system = "1"
)

var errUndecodable = errors.New("the id is NULL")

// world is all that is outside of the relay, and what is true.
type world struct {
	*plan
	began     time.Time
	db        *memorytest.Database
	processes [2]*process
	failed    chan struct{} // closed at the first failure

	mu      sync.Mutex
	changed chan struct{} // closed, and re-created, when something that is waited for has changed
	still   bool          // no faults any more but what is broken for long
	steps   int           // calls of the relay to the outside
	failure string
	notes   []note

	exchangeOrTopicBroken [places]bool
	destBroken            [places][dests]bool
	flaky                 [places][dests]int // sends of a thousand that are nacked
	chance                *dice              // for those
	refusing              bool               // the database refuses every row
	brokerUp              bool

	confirmed, saved pglogrepl.LSN
	positions        map[pglogrepl.LSN]bool // that were sent
	holder           *session
	down             bool // PostgreSQL
	crashes          int  // its
	epoch            int64
	eventAt          map[event.Position]*simEvent
	opened, live     int // transactions and events that are committed, or will be by themselves
}

// maxSteps bounds a seed whose relay spins.
const maxSteps = 200_000

func newWorld(p *plan) *world {
	w := &world{
		plan: p, began: time.Now(), db: memorytest.NewDatabase(), failed: make(chan struct{}), changed: make(chan struct{}),
		chance: newDice(p.seed, 3), brokerUp: true, positions: map[pglogrepl.LSN]bool{0: true}, eventAt: map[event.Position]*simEvent{},
	}
	for _, e := range p.events {
		w.eventAt[e.pos] = e
	}
	w.opened = p.usual
	for _, tx := range p.txs[:p.usual] {
		w.live += len(tx.events)
	}
	for i := range w.processes {
		w.processes[i] = &process{w: w, n: i}
	}
	return w
}

// note is a line of the history.
type note struct {
	at     time.Duration
	who    string
	e      *simEvent // nil: it concerns all
	format string
	args   []any
}

func (w *world) note(who string, e *simEvent, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(who, e, format, args...)
}

func (w *world) noteLocked(who string, e *simEvent, format string, args ...any) {
	w.notes = append(w.notes, note{time.Since(w.began), who, e, format, args})
}

// fail notes the first failure, with the history of the ordering group of e, or of everything when
// e is nil.
func (w *world) fail(e *simEvent, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(e, format, args...)
}

func (w *world) failLocked(e *simEvent, format string, args ...any) {
	if w.failure != "" {
		return
	}
	w.failure = fmt.Sprintf(format, args...) + "\n" + w.history(e)
	close(w.failed)
}

func (w *world) history(of *simEvent) string {
	if *all {
		of = nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "plan: ordering %d, atomic %t, hold %t, calm %t, mirror %t, held %d, window %d of %d bytes, rounds of %d, budget of %d, rows %d, page %d, lanes %v, attempts %d, backoff %s to %s, max age %s, lost %d, cut %d, spared %d, speed %v, chaos ends at %s\n",
		w.ordering, w.atomic, w.hold, w.calm, w.mirror, w.held, w.budget, w.maxInFlightBytes, w.roundBytes, w.budgetBytes, w.rows, w.page, w.lanes, w.attempts, w.backoff, w.maxBackoff, w.maxAge, w.lost, w.cut, w.spared, w.speed, w.chaosEnd)
	for _, e := range w.events[:w.live] {
		if of == nil || w.together(of, e) {
			fmt.Fprintf(&b, "%s: %s of tx%d (at %s), key %d, to %s.%s, fault %t, poison %d, row refused %t %t; delivered %d times, copied %d times, %d refused\n", e, e.pos, e.tx.n, e.tx.at, e.key,
				unitName(e.exchangeOrTopic), keyName(e.dest), e.fault, e.poison, e.refuse, e.noEnd, e.delivered, e.copies, e.copyPoison)
		}
	}
	for _, n := range w.notes {
		if of == nil || n.e == nil || w.together(of, n.e) {
			name := ""
			if n.e != nil {
				name = n.e.String()
			}
			fmt.Fprintf(&b, "%12.6f %-12s %-4s %s\n", n.at.Seconds(), n.who, name, fmt.Sprintf(n.format, n.args...))
		}
	}
	for _, row := range w.db.Deferred(slot) {
		if e := w.eventAt[row.Event.Position]; of == nil || w.together(of, e) {
			fmt.Fprintf(&b, "left in retry: %s n=%d %s attempts=%d next=%s\n", e, row.N, row.Reason, row.Attempts, row.NextAttempt.Sub(w.began))
		}
	}
	for _, l := range w.db.DeadLetters(slot) {
		if e := w.eventAt[l.Row.Event.Position]; of == nil || w.together(of, e) {
			fmt.Fprintf(&b, "dead letter: %s n=%d %s %s mirrored %t\n", e, l.Row.N, l.State, l.Row.Reason, l.Mirrored)
		}
	}
	return b.String()
}

// together reports whether two events are kept in order with each other.
func (w *world) together(a, b *simEvent) bool {
	switch {
	case a == b:
		return true
	case a.exchangeOrTopic != b.exchangeOrTopic || a.fault || b.fault || w.ordering == relay.None:
		return false
	case w.ordering == relay.Commit:
		return true
	}
	return a.key == b.key && a.key > 0
}

// change wakes whoever waits for something.
func (w *world) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// step counts a call to the outside.
func (w *world) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.steps++; w.steps == maxSteps {
		w.failLocked(nil, "the relay spins: %d calls", w.steps)
	}
}

// tables are the events that have a row, and the states of dead letters.
type tables struct {
	deferred    map[*simEvent]*store.Row
	deadLetters map[*simEvent]memorytest.State
}

// tables reads them, and notes which dead letters were closed.
func (w *world) tables() tables {
	t := tables{map[*simEvent]*store.Row{}, map[*simEvent]memorytest.State{}}
	for _, row := range w.db.Deferred(slot) {
		t.deferred[w.eventAt[row.Event.Position]] = row
	}
	for _, l := range w.db.DeadLetters(slot) {
		e := w.eventAt[l.Row.Event.Position]
		t.deadLetters[e] = l.State
		if l.State != memorytest.Open {
			e.closed = true
		}
	}
	return t
}

// report is the flush position that reaches the server (invariants I1 and I2): what it covers is
// delivered, or in a table.
func (w *world) report(who string, lsn pglogrepl.LSN) {
	if !w.positions[lsn] {
		w.failLocked(nil, "I1: %s reports %s, which is no position of the stream", who, lsn)
	}
	var t *tables
	for _, tx := range w.txs {
		if tx.end > lsn || tx.end <= w.confirmed {
			continue
		}
		for _, e := range tx.events {
			if e.delivered > 0 || e.closed {
				continue
			}
			if t == nil {
				now := w.tables()
				t = &now
			}
			if t.deferred[e] == nil && t.deadLetters[e] == "" {
				w.failLocked(e, "I1: %s reports %s, %s is neither delivered nor in a table", who, lsn, e)
			}
		}
	}
	if lsn > w.confirmed {
		w.noteLocked(who, nil, "reports %s", lsn)
		w.confirmed = lsn
	}
}

// source is why an event was sent.
type source uint8

const (
	fromStream source = iota
	fromTable
	fromDeadLetter
	fromMirror // it is a copy of a dead letter
)

func sourceOf(ev *event.Event) source {
	switch {
	case isCopy(ev):
		return fromMirror
	case ev.Replay:
		return fromDeadLetter
	case ev.Route != nil:
		return fromTable
	}
	return fromStream
}

func (s source) String() string { return [...]string{"new", "row", "dead_letter", "copy"}[s] }

// answer is what the broker says to an event that reaches it: nil, and it is delivered. t is the
// term that sent it, nil when it is a message that nobody waits for any more.
func (w *world) answer(who string, t *term, e *simEvent, exchangeOrTopic, dest int, from source) (no *sink.Fault) {
	if from == fromMirror {
		return w.answerCopy(who, t, e, dest)
	}
	defer func() { e.excused = e.excused || no != nil }()
	name := func() string { return string(unitName(exchangeOrTopic)) + "." + string(keyName(dest)) }
	switch {
	case w.exchangeOrTopicBroken[exchangeOrTopic]:
		return &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: string(unitName(exchangeOrTopic))}
	case e.poison < 0:
		e.refusals++
		return &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge, Destination: name()}
	case w.destBroken[exchangeOrTopic][dest]:
		return &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Destination: name()}
	case w.flaky[exchangeOrTopic][dest] > 0 && w.chance.in(w.flaky[exchangeOrTopic][dest]):
		return &sink.Fault{Class: sink.Destination, Reason: sink.Nacked, Destination: name()}
	case e.poison > 0:
		e.poison--
		e.refusals++
		return &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException, Destination: name(), Text: "541"}
	}
	w.deliver(who, t, e, from)
	return nil
}

// deliver notes that the broker has an event, and checks order and duplicates.
func (w *world) deliver(who string, t *term, e *simEvent, from source) {
	e.delivered++
	w.noteLocked(who, e, "is DELIVERED (%d, %s)", e.delivered, from)
	if t != nil {
		w.checkTwice(who, t, e, from)
	}
	if e.straight && from == fromTable {
		w.failLocked(e, "step 9: %s sends %s through the tables, and nothing holds it", who, e)
	}
	if e.delivered > 1 || e.fault || from == fromDeadLetter {
		return
	}
	var now *tables
	for _, f := range w.events[:e.n] {
		if f.delivered > 0 || f.closed || f == e || !w.together(e, f) || f.overtaken(e) {
			continue
		}
		if now == nil {
			read := w.tables()
			now = &read
		}
		if state := now.deadLetters[f]; f.closed || state == memorytest.Open && !w.hold {
			continue
		}
		w.failLocked(e, "I3: %s sends %s before %s", who, e, f)
	}
}

// overtaken reports whether later may come before e: they went in one call of a broker that does
// not append calls as a whole, or they have different keys, and e was refused.
func (e *simEvent) overtaken(later *simEvent) bool {
	return e.excused && slices.Contains(e.company, later)
}

// checkTwice checks that a term sends an event as often only as it has a reason to.
func (w *world) checkTwice(who string, t *term, e *simEvent, from source) {
	t.delivered[e.n]++
	may := t.doubts[e.n]
	if e.tx.end > t.start {
		may++ // the stream brought it
	}
	if t.deferred[e.n] {
		may++
	}
	may += e.replays
	if t.delivered[e.n] > may {
		w.failLocked(e, "I2: %s sends %s for the %d. time in its term, %d would be right", who, e, t.delivered[e.n], may)
	}
	if from != fromStream {
		return
	}
	switch {
	case t.dead[e.n]:
		w.failLocked(e, "I8: %s sends %s as a new event, it was a dead letter before the term began", who, e)
	case t.deferred[e.n] && t.delivered[e.n] < 2:
		w.failLocked(e, "I2: %s sends %s as a new event, it was deferred before the term began", who, e)
	}
}
