package relay

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Held is a rejected event that holds its lane.
type Held struct {
	Position    outbox.Position
	ID          string // its first 200 bytes
	Lane        int
	Destination string
	Fault       string // the broker's words
	Class       sink.Class
	Reason      sink.Reason
	Attempts    int
	Since       time.Time
	NextAttempt time.Time // zero: none, it can never be sent
}

// maxHeld is how many held events Snapshot names.
const maxHeld = 20

const maxHeldID = 200

// board shows which lanes are held, and by what.
type board struct {
	mu    sync.Mutex
	lanes map[int][]Held // the first maxHeld of each held lane
	held  map[int]int    // all of each
	total int
}

func newBoard() *board {
	return &board{lanes: make(map[int][]Held), held: make(map[int]int)}
}

// set replaces what the board shows of a lane; total is 0 when it is not held any more.
func (b *board) set(lane int, first []Held, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += total - b.held[lane]
	if total == 0 {
		delete(b.held, lane)
		delete(b.lanes, lane)
	} else {
		b.held[lane], b.lanes[lane] = total, first
	}
}

// show is what is held: the oldest, in commit order, and how many in all.
func (b *board) show() (first []Held, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, held := range b.lanes {
		first = append(first, held...)
	}
	slices.SortFunc(first, func(x, y Held) int { return x.Position.Compare(y.Position) })
	return first[:min(len(first), maxHeld)], b.total
}

// tell brings the board up to date with the lane. It logs which event holds the lane, again when that is another one, and
// when the lane goes on: at most one line for each call that was made.
func (ln *lane) tell() {
	if ln.open.held == 0 && ln.told == nobody {
		return
	}
	var first []Held
	for _, it := range ln.open.items {
		if it.fault != nil && len(first) < maxHeld {
			first = append(first, ln.describe(it))
		}
	}
	ln.line.board.set(ln.n, first, ln.open.held)
	switch {
	case ln.open.held == 0:
		ln.line.log.Info("rejected events were confirmed, lane goes on", zap.Int("lane", ln.n))
		ln.told = nobody
	case first[0].Position != ln.told:
		h := first[0]
		ln.line.log.Warn("event rejected: it holds its lane and is tried again, nothing is dropped",
			zap.Int("lane", ln.n), zap.String("event_id", h.ID), zap.Stringer("position", h.Position),
			zap.String("destination", h.Destination), zap.String("reason", string(h.Reason)),
			zap.String("fault", h.Fault), zap.Int("held", ln.open.held))
		ln.told = h.Position
	}
}

// tellFailing logs that calls fail one after the other, again when their words change, and that one moved something again.
// A sink waits inside Publish while its broker is away, and tells of that itself: one failed call is the end of a
// connection, two in a row are a fault that waiting does not show.
func (ln *lane) tellFailing(err error) {
	switch {
	case ln.fails == 0 && ln.failing != "":
		ln.line.log.Info("publishing goes on", zap.Int("lane", ln.n))
		ln.failing = ""
	case ln.fails > 1 && err != nil && err.Error() != ln.failing:
		ln.failing = err.Error()
		ln.line.log.Warn("publishing fails and is tried again, nothing is dropped", zap.Int("lane", ln.n), zap.Error(err))
	}
}

// nobody is no event's position: a transaction does not begin at 0.
var nobody outbox.Position

func (ln *lane) describe(it *item) Held {
	h := Held{
		Position:    it.ev.Position,
		ID:          string(it.ev.ID[:min(len(it.ev.ID), maxHeldID)]),
		Lane:        ln.n,
		Destination: it.fault.Destination,
		Fault:       it.fault.Words,
		Class:       it.fault.Class,
		Reason:      it.fault.Reason,
		Attempts:    it.attempts,
		Since:       it.since,
	}
	if it.ev.Fault == nil {
		h.NextAttempt = ln.heldUntil
	}
	return h
}
