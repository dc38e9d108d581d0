// The line and the retry table: what each asks of the other.

package relay

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Retry table takes what cannot go now: events that were rejected, and what is held behind them.
// The lanes call it; it answers through Line's methods Settled, Offer, NotNow and Uncount. None of
// its methods but Known blocks.
type RetryTable interface {
	// Defer takes over events whose rows are to be written, those of an ordering group in the order
	// of the calls. They stay in the in-flight budget, with their bytes, until Line.Settled is
	// called with them.
	Defer(events []*Deferred)

	// Fed gives back rows that were offered, with their Outcome and Left filled in.
	Fed(rows []*Fed)

	// Known reports whether the retry table had the event already when this line began; the reader
	// then settles it unsent. Another event at the position of one that it had is not known.
	// Positions are asked for in increasing order, but those of a transaction that comes once more,
	// and of which no event was admitted, from its beginning. It may ask the database, and waits
	// for it until ctx is done: the only error is then ctx's.
	Known(ctx context.Context, ev *event.Event) (bool, error)
}

// Deferred is an event on its way to the retry table. The lane that made it does not touch it
// again.
type Deferred struct {
	Event *event.Event // valid until Line.Settled
	Place sink.Place
	Group uint64 // 0: the event has no order to keep and is not counted
	Dead  bool   // to the dead letters at once; else to the retry table

	// nil: it was not sent, because an earlier one of its ordering group is held or its destination
	// is paused
	Fault    *sink.Fault
	Attempts int       // that count against retry.max_attempts
	Since    time.Time // of the first rejection; zero without one

	item *item
}

// Fed is a row of the retry table, or a dead letter that is replayed, on its way through a lane.
// From Line.Offer until Retry table.Fed it is the lane's.
type Fed struct {
	Event event.Event
	Place sink.Place
	Group uint64 // 0: not counted, and in no order
	// a dead letter: it goes before the rows of its ordering group, and no count falls when it is
	// confirmed
	Replay bool

	Refusals int // of the event before, of what counts

	// Outcome is Confirmed, Rejected, or Unsent: an earlier row of its ordering group was rejected,
	// or the line ends.
	Outcome sink.Outcome
	// Left is how many rows the ordering group, or the exchange or topic it is counted with, still
	// has after a confirmed one. At 0 the lane has released it.
	Left int
}

// Settled says that the rows of these events are committed: they leave the in-flight budget. It may
// be called from any goroutine.
func (l *Line) Settled(deferred []*Deferred) {
	items := make([]*item, len(deferred))
	notes := make([]note, 0, len(deferred))
	lanes := make([]int, 0, len(deferred))
	for i, p := range deferred {
		items[i] = p.item
		if p.Dead && p.Group != 0 && !l.cfg.Block {
			notes = append(notes, note{kind: deadLettered, group: p.Group})
			lanes = append(lanes, p.Place.Lane)
		}
	}
	l.tracker.settle(items)
	l.budget.release(items) // the Deferred with them
	for i, n := range notes {
		l.lane(lanes[i]).tell(n)
	}
}

// Offer takes rows into their lanes, those of an ordering group in this order. An ordering group's
// rows of one call come to the lane together, so that the later ones are still there to be sent
// back when the first is refused. It may be called from any goroutine.
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

// NotNow says that nothing of the ordering group may be fed at present: should the lane keep its
// new events in memory, they are deferred.
func (l *Line) NotNow(lane int, group, exchangeOrTopic uint64) {
	l.lane(lane).tell(note{nothing, group, exchangeOrTopic})
}

// Uncount says that a row which is counted has left the tables, or holds its ordering group no
// more, without a confirm in the lane.
func (l *Line) Uncount(lane int, group, exchangeOrTopic uint64) {
	l.lane(lane).tell(note{uncounted, group, exchangeOrTopic})
}

// Load counts rows of an ordering group that were there before. It is called before Run, waits
// until the sink knows the event's lane, and returns ctx's error.
func (l *Line) Load(ctx context.Context, ev *event.Event, rows int) error {
	place, ok := l.cfg.Sink.Place(ev)
	for !ok {
		select {
		case <-l.cfg.Sink.Changed():
		case <-ctx.Done():
			return ctx.Err()
		}
		place, ok = l.cfg.Sink.Place(ev)
	}
	group := l.Group(ev, place.ExchangeOrTopic)
	if group == 0 {
		return nil
	}
	if h := &l.lane(place.Lane).waiting; !h.add(group, place.ExchangeOrTopic, rows) {
		h.whole(place.ExchangeOrTopic, rows)
	}
	return nil
}

// Ordering group is what the event is kept in order with: its key within the exchange or topic;
// with ordering Commit the whole exchange or topic; 0 for an event that is in no order. (PostgreSQL
// computes it too: key_digest # exchange or topic.)
func (l *Line) Group(ev *event.Event, exchangeOrTopic uint64) uint64 {
	switch {
	case ev.Fault != nil || l.cfg.Ordering == None:
		return 0
	case l.cfg.Ordering == Commit:
		return max(exchangeOrTopic, 1)
	case !ev.Ordered:
		return 0
	}
	return max(ev.Hash^exchangeOrTopic, 1)
}

// Paused reports whether events of that place are deferred unsent at present.
func (l *Line) Paused(p sink.Place) bool { return l.pausedDests.paused(p) }

// Paused destinations lists what is paused, the longest first.
func (l *Line) PausedDests() []PausedDest { return l.pausedDests.list() }

// PausedDestsChanged delivers after a paused destination opened; several may be one signal.
func (l *Line) PausedDestsChanged() <-chan struct{} { return l.pausedDests.changed }

// ConfirmedSince reports whether something of that destination is known to have been confirmed
// after that time.
func (l *Line) ConfirmedSince(dest uint64, at time.Time) bool {
	return l.pausedDests.confirmedSince(dest, at)
}

// Stopping ends all cut-overs, for a stop: what lanes keep in memory behind rows is deferred.
func (l *Line) Stopping() {
	l.stopping.Store(true)
	for _, ln := range l.all() {
		ln.tell(note{kind: stopping})
	}
}
