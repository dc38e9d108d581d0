// The line and the retry table: what each calls of the other.

package relay

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// RetryTable takes the events that cannot be sent now: rejected events, and those that wait behind
// them. The lanes call it. It answers through Line's methods Settled, Offer, NotNow and Uncount.
// Only Known blocks.
type RetryTable interface {
	// Defer takes over events whose rows are to be written, those of an ordering group in the order
	// of the calls. They stay in the in-flight budget, with their bytes, until Line.Settled is
	// called with them.
	Defer(events []*Deferred)

	// Fed gives back rows that were offered, with their Outcome and Left filled in.
	Fed(rows []*Fed)

	// Known reports whether the retry table had the event already when this line began. The reader
	// then settles the event without sending it. A different event at the same position is not
	// known. Positions come in increasing order, with one exception: a transaction of which no
	// event was admitted may come once more, and begins again. Known may query the database, and
	// waits for it until ctx is done: its only error is that of ctx.
	Known(ctx context.Context, ev *event.Event) (bool, error)
}

// Deferred is an event on its way to the retry table. The lane that made it does not touch it
// again.
type Deferred struct {
	Event *event.Event // valid until Line.Settled
	Place sink.Place
	Group uint64 // 0: the event has no order to keep and is not counted
	Dead  bool   // to the dead letters at once; else to the retry table

	// nil: the event was not sent, because an earlier one of its ordering group waits or its
	// destination is paused
	Fault    *sink.Fault
	Attempts int       // that count against retry.max_attempts
	Since    time.Time // of the first rejection; zero without one

	item *item
}

// Fed is a row of the retry table, or a dead letter that is replayed, on its way through a lane.
// From Line.Offer until RetryTable.Fed it belongs to the lane.
type Fed struct {
	Event event.Event
	Place sink.Place
	Group uint64 // 0: not counted, and in no order
	// the row is a dead letter: it goes before the rows of its ordering group, and its confirm
	// changes no count
	Replay bool

	Refusals int // rejections of the event so far that count
	// Alone: the row was refused before, or asks whether a paused destination accepts again. It is
	// sent apart from the lane's calls, as the only one of its ordering group. See sink.Prober.
	Alone bool

	// Outcome is Confirmed, Rejected, or Unsent: an earlier row of its ordering group was rejected,
	// or the line ends.
	Outcome sink.Outcome
	// Left is the number of rows that are left after a confirmed one, in the ordering group or in
	// the exchange or topic that it is counted with. At 0 the lane has released the ordering group.
	Left int
}

// Settled settles events whose rows are committed: the tracker counts them, so the watermark may
// move, and they leave the in-flight budget. It may be called from any goroutine.
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
		l.lane(lanes[i]).notify(n)
	}
}

// Offer takes rows into their lanes, those of an ordering group in this order. An ordering group's
// rows of one call come to the lane together, so that the later ones can still be sent back when
// the first is rejected. It may be called from any goroutine.
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

// NotNow tells the lane that no row of the ordering group may be fed at present. If the lane keeps
// new events of the ordering group in memory, it defers them.
func (l *Line) NotNow(lane int, group, exchangeOrTopic uint64) {
	l.lane(lane).notify(note{nothing, group, exchangeOrTopic})
}

// Uncount tells the lane that a counted row has left the tables, or no longer blocks its ordering
// group, without a confirm in the lane.
func (l *Line) Uncount(lane int, group, exchangeOrTopic uint64) {
	l.lane(lane).notify(note{uncounted, group, exchangeOrTopic})
}

// Load counts rows of the event's ordering group that were in the tables before this line began. It
// is called before Run. It waits until the sink knows the event's lane; its only error is that of
// ctx.
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
	if w := &l.lane(place.Lane).waiting; !w.add(group, place.ExchangeOrTopic, rows) {
		w.countWhole(place.ExchangeOrTopic, rows)
	}
	return nil
}

// Group is the ordering group of an event: its key within the exchange or topic; with ordering
// Commit the whole exchange or topic; 0 for an event without an order. (PostgreSQL computes it too:
// hash # exchange_or_topic.)
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

// Paused reports whether events for that place are deferred without being sent at present.
func (l *Line) Paused(p sink.Place) bool { return l.pauses.paused(p) }

// Pauses lists what is paused, the longest first.
func (l *Line) Pauses() []Pause { return l.pauses.list() }

// Resumed delivers after a pause ended; several may be one signal.
func (l *Line) Resumed() <-chan struct{} { return l.pauses.resumed }

// ConfirmedSince reports whether something of that destination is known to have been confirmed
// after that time.
func (l *Line) ConfirmedSince(dest uint64, at time.Time) bool {
	return l.pauses.confirmedSince(dest, at)
}

// Stopping prepares a stop: it ends all cut-overs, so the events that lanes keep in memory behind
// rows are deferred.
func (l *Line) Stopping() {
	l.stopping.Store(true)
	for _, ln := range l.all() {
		ln.notify(note{kind: stopping})
	}
}
