// The line and the retry table: what each asks of the other.

package relay

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Siding takes what cannot go now: events that were rejected, and what is held behind them. The
// lanes call it; it answers through Line's methods Settled, Offer, NotNow and Uncount. None of its
// methods but Known blocks.
type Siding interface {
	// Park takes over events whose rows are to be written, those of a chain in the order of the
	// calls. They stay in the window, with their bytes, until Line.Settled is called with them.
	Park(events []*Parked)

	// Fed gives back rows that were offered, with their Outcome and Left filled in.
	Fed(rows []*Fed)

	// Known reports whether the siding had the event already when this line began; the reader then
	// settles it unsent. Another event at the position of one that it had is not known. Positions
	// are asked for in increasing order, but those of a transaction that comes once more, and of
	// which no event was admitted, from its beginning. It may ask the database, and waits for it
	// until ctx is done: the only error is then ctx's.
	Known(ctx context.Context, ev *outbox.Event) (bool, error)
}

// Parked is an event on its way to the siding. The lane that made it does not touch it again.
type Parked struct {
	Event *outbox.Event // valid until Line.Settled
	Place sink.Place
	Chain uint64 // 0: the event has no order to keep and is not counted
	Dead  bool   // to the dead letters at once; else to the retry table

	Fault    *sink.Fault // nil: it was not sent, because an earlier one of its chain is held or its destination is paused
	Attempts int         // that count against retry.max_attempts
	Since    time.Time   // of the first rejection; zero without one

	item *item
}

// Fed is a row of the siding, or a letter that is replayed, on its way through a lane. From
// Line.Offer until Siding.Fed it is the lane's.
type Fed struct {
	Event  outbox.Event
	Place  sink.Place
	Chain  uint64 // 0: not counted, and in no order
	Replay bool   // a letter: it goes before the rows of its chain, and no count falls when it is confirmed

	Refusals int // of the event before, of what counts

	// Outcome is Confirmed, Rejected, or Unsent: an earlier row of its chain was rejected, or the
	// line ends.
	Outcome sink.Outcome
	// Left is how many rows the chain, or the unit it is counted with, still has after a confirmed
	// one. At 0 the lane has released it.
	Left int
}

// Settled says that the rows of these events are committed: they leave the window. It may be called
// from any goroutine.
func (l *Line) Settled(parked []*Parked) {
	items := make([]*item, len(parked))
	notes := make([]note, 0, len(parked))
	lanes := make([]int, 0, len(parked))
	for i, p := range parked {
		items[i] = p.item
		if p.Dead && p.Chain != 0 && !l.cfg.Block {
			notes = append(notes, note{kind: buried, chain: p.Chain})
			lanes = append(lanes, p.Place.Lane)
		}
	}
	l.tracker.settle(items)
	l.window.release(items) // the Parked with them
	for i, n := range notes {
		l.lane(lanes[i]).tell(n)
	}
}

// Offer takes rows into their lanes, those of a chain in this order. A chain's rows of one call
// come to the lane together, so that the later ones are still there to be sent back when the first
// is refused. It may be called from any goroutine.
func (l *Line) Offer(rows []*Fed) {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *Fed) int { return a.Place.Lane - b.Place.Lane })
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Place.Lane == rows[0].Place.Lane {
			n++
		}
		l.lane(rows[0].Place.Lane).take(rows[:n])
		rows = rows[n:]
	}
}

// NotNow says that nothing of the chain may be fed at present: should the lane keep its new events
// in memory, they are parked.
func (l *Line) NotNow(lane int, chain, unit uint64) {
	l.lane(lane).tell(note{nothing, chain, unit})
}

// Uncount says that a row which is counted has left the tables, or holds its chain no more, without
// a confirm in the lane.
func (l *Line) Uncount(lane int, chain, unit uint64) {
	l.lane(lane).tell(note{uncounted, chain, unit})
}

// Load counts rows of a chain that were there before. It is called before Run, waits until the sink
// knows the event's lane, and returns ctx's error.
func (l *Line) Load(ctx context.Context, ev *outbox.Event, rows int) error {
	place, ok := l.cfg.Sink.Place(ev)
	for !ok {
		select {
		case <-l.cfg.Sink.Changed():
		case <-ctx.Done():
			return ctx.Err()
		}
		place, ok = l.cfg.Sink.Place(ev)
	}
	chain := l.Chain(ev, place.Unit)
	if chain == 0 {
		return nil
	}
	if h := &l.lane(place.Lane).waiting; !h.add(chain, place.Unit, rows) {
		h.whole(place.Unit, rows)
	}
	return nil
}

// Chain is what the event is kept in order with: its key within the unit; with ordering Commit the
// whole unit; 0 for an event that is in no order. (PostgreSQL computes it too: key_digest # unit.)
func (l *Line) Chain(ev *outbox.Event, unit uint64) uint64 {
	switch {
	case ev.Fault != nil || l.cfg.Ordering == None:
		return 0
	case l.cfg.Ordering == Commit:
		return max(unit, 1)
	case !ev.Ordered:
		return 0
	}
	return max(ev.Hash^unit, 1)
}

// Paused reports whether events of that place are parked unsent at present.
func (l *Line) Paused(p sink.Place) bool { return l.gates.paused(p) }

// Gates lists what is paused, the longest first.
func (l *Line) Gates() []Gate { return l.gates.list() }

// GatesChanged delivers after a gate opened; several may be one signal.
func (l *Line) GatesChanged() <-chan struct{} { return l.gates.changed }

// ConfirmedSince reports whether something of that destination is known to have been confirmed
// after that time.
func (l *Line) ConfirmedSince(dest uint64, at time.Time) bool {
	return l.gates.confirmedSince(dest, at)
}

// Stopping ends all cut-overs, for a stop: what lanes keep in memory behind rows is parked.
func (l *Line) Stopping() {
	l.stopping.Store(true)
	for _, ln := range l.all() {
		ln.tell(note{kind: stopping})
	}
}
