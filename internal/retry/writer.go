// The writer: the goroutine that commits the rows of deferred events, and what it does with those
// that the database refuses.

package retry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// writer commits the rows of deferred events: one statement per round, with all events that have
// come in the meantime. No lane waits for it.
//
// The rows of an ordering group are written in the order of Defer. So for each row in the tables,
// every earlier event of its ordering group was delivered or is in the tables too. A statement of
// unknown outcome is repeated before any other, with the same rows under the same numbers. If it
// was carried out, the repetition finds its rows; if it was not, nothing has overtaken them.
type writer struct {
	t    *Table
	pace retryPace

	// acked is the highest number up to which all rows are committed, or will never be committed
	// under their numbers. The feeder reads no row above acked. Otherwise it could feed and delete
	// a row whose commit the writer has not seen yet, and the writer would write that row a second
	// time.
	acked                      atomic.Int64
	nextNumberLeased, leaseEnd int64 // numbers that are leased and not used

	woken chan struct{} // cap 1

	mu     sync.Mutex // guards the rest
	queue  []*inflight.Event
	stuck  map[uint64]*stuckRow // ordering groups whose first row the database refuses
	events int                  // all of them
}

// The limits of a round. A round has at least one row.
const (
	roundRows  = 500
	roundBytes = 2 << 20
)

func (w *writer) init(t *Table) {
	*w = writer{
		t: t, pace: retryPace{log: t.cfg.Log, what: "writing deferred events"}, woken: make(chan struct{}, 1),
		stuck: map[uint64]*stuckRow{},
	}
}

// run writes until ctx is done, or this leader is fenced.
func (w *writer) run(ctx context.Context) {
	working := w.t.cfg.Hooks.Writer
	defer reportWork(working, false)
	for ctx.Err() == nil {
		reportWork(working, true)
		if batch := w.nextBatch(); len(batch) > 0 {
			if !w.writeBatch(ctx, batch) {
				return
			}
			continue
		}
		reportWork(working, false)
		timer := time.NewTimer(w.idleTime())
		select {
		case <-w.woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// nextBatch returns the rows to write next: a refused row that is due again, alone, or the first
// rows of the queue.
func (w *writer) nextBatch() []*inflight.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.takeDueRefused(time.Now()); ok {
		return []*inflight.Event{e}
	}
	n, size := 0, 0
	for n < len(w.queue) && n < roundRows && (n == 0 || int64(size+w.queue[n].Size) <= w.t.cfg.RoundBytes) {
		size += w.queue[n].Size
		n++
	}
	batch := slices.Clone(w.queue[:n])
	clear(w.queue[:n])
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return batch
}

// writeBatch commits the entries in this order, except those that the database refuses and the
// entries behind them. It returns false when ctx is done or the leader is fenced. Events that are
// not committed then stay in the slot.
func (w *writer) writeBatch(ctx context.Context, batch []*inflight.Event) bool {
	written, refused := 0, 0
	for todo := [][]*inflight.Event{batch}; len(todo) > 0; {
		part := w.holdBackStuck(todo[len(todo)-1])
		todo = todo[:len(todo)-1]
		if len(part) == 0 {
			continue
		}
		err := w.deferRows(ctx, part)
		var no *store.Refused
		switch {
		case err == nil:
			written += len(part)
		case errors.As(err, &no):
			if len(part) == 1 {
				w.keepStuck(part[0], no)
				refused++
			} else {
				todo = append(todo, splitRefused(part, no)...)
			}
		default:
			if errors.Is(err, store.ErrFenced) {
				w.t.endFenced()
			}
			return false
		}
		if refused >= refusalLimit && written == 0 {
			// The rows do not seem to be at fault. The remaining rows are written together again
			// later.
			w.requeue(todo)
			return sleep(ctx, w.pace.failed(err))
		}
	}
	return true
}

// refusalLimit is how many single rows must be refused one after the other before the statement
// itself is suspected.
const refusalLimit = 8

// splitRefused splits a refused statement of several rows into the parts to write next, the last
// one first: the rows before the one at fault, that one alone, the rest. While it is not known
// which row is at fault it splits in halves.
func splitRefused(part []*inflight.Event, no *store.Refused) [][]*inflight.Event {
	at := -1
	if no.Row != nil {
		at = slices.IndexFunc(part, func(e *inflight.Event) bool { return e.Position == no.Row.Event.Position })
	}
	if at < 0 {
		half := len(part) / 2
		return [][]*inflight.Event{part[half:], part[:half]}
	}
	return [][]*inflight.Event{part[at+1:], part[at : at+1], part[:at]}
}

// deferRows commits rows and settles their events. Its error is a *Refused (nothing was written),
// or final.
func (w *writer) deferRows(ctx context.Context, part []*inflight.Event) error {
	rows := make([]*store.Row, len(part))
	now := time.Now()
	for i := range part {
		n, err := w.nextNumber(ctx)
		if err != nil {
			return err
		}
		// A number belongs to one statement: a refused row gets a new number, above acked, for its
		// next statement.
		rows[i] = w.rowOf(part[i], n, now)
	}
	err := w.pace.untilKnown(ctx, w.t.cfg.Hooks.Writer, func() error { return w.t.cfg.Store.Defer(ctx, rows) })
	if err == nil {
		w.finishRows(part, rows)
	}
	return err
}

// nextNumber is the next row number.
func (w *writer) nextNumber(ctx context.Context) (int64, error) {
	if w.nextNumberLeased == w.leaseEnd {
		err := w.pace.untilKnown(ctx, w.t.cfg.Hooks.Writer, func() (err error) {
			w.nextNumberLeased, err = w.t.cfg.Store.LeaseNumbers(ctx)
			w.leaseEnd = w.nextNumberLeased
			return err
		})
		if err != nil {
			return 0, err
		}
		w.leaseEnd += store.LeaseSize
	}
	w.nextNumberLeased++
	return w.nextNumberLeased - 1, nil
}

// finishRows tells the line and the hooks of rows that are committed. Only after the commit acked
// moves, and the line settles the events, which may move the watermark (I2). The line is informed
// last.
func (w *writer) finishRows(part []*inflight.Event, rows []*store.Row) {
	w.acked.Store(rows[len(rows)-1].N)
	dead := 0
	for _, row := range rows {
		if row.Dead {
			dead++
			w.t.cfg.logDeadLetter(row, writtenResult(row))
		}
	}
	w.t.stats.rowsChanged.Store(true)
	w.forgetEvents(part)
	w.t.line.Committed(part) // no event is read after this
	callHook(w.t.cfg.Hooks.Deferred, len(rows)-dead)
	callHook(w.t.cfg.Hooks.Dead, dead)
}

// forgetEvents removes events that the writer is done with.
func (w *writer) forgetEvents(part []*inflight.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events -= len(part)
	for _, e := range part {
		w.releaseStuck(e)
	}
}

// rowOf makes the row of an event. The row has everything that is needed to publish the event when
// nothing else of it is left, neither its outbox row nor its WAL.
func (w *writer) rowOf(e *inflight.Event, n int64, now time.Time) *store.Row {
	group, ordered := w.t.cfg.Scope.Group(&e.Event, e.Place.ExchangeOrTopic)
	r := &store.Row{
		N: n, Incarnation: w.t.cfg.Incarnation, Event: e.Event,
		Group: group, Ordered: ordered, ExchangeOrTopic: e.Place.ExchangeOrTopic, Dest: e.Place.Dest, Dead: e.Dead,
		Attempts: e.Attempts, First: e.Since,
	}
	if r.Event.Route == nil {
		route := w.t.cfg.Sink.Route(&e.Event)
		r.Event.Route = &route
	}
	if f := e.Refusal; f != nil {
		r.Class, r.Reason, r.Text, r.Destination, r.Last = f.Class, f.Reason, f.Text, f.Destination, now
	}
	if e.DueIn > 0 {
		r.NextAttempt = now.Add(e.DueIn)
	}
	return r
}

// hasEvents reports whether the writer has any event.
func (w *writer) hasEvents() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events > 0
}

// stuckRow is a row that the database refuses, with the later rows of its ordering group that wait
// behind it. If a later row were written without it, the later one would be sent first. The refused
// row is tried again for ever: nothing is dropped (I8).
type stuckRow struct {
	first  *inflight.Event
	behind []*inflight.Event
	err    string
	since  time.Time
	tries  int
	due    time.Time
}

// Between two tries of a refused row.
const (
	minRefusedPause = time.Second
	maxRefusedPause = time.Minute
)

// maxShown is how many refused rows Snapshot names.
const maxShown = 20

// groupOf is the ordering group of an event in the tables.
func (w *writer) groupOf(e *inflight.Event) uint64 {
	group, _ := w.t.cfg.Scope.Group(&e.Event, e.Place.ExchangeOrTopic)
	return group
}

// keepStuck notes that the row of an event was refused.
func (w *writer) keepStuck(e *inflight.Event, no *store.Refused) {
	w.mu.Lock()
	now := time.Now()
	group := w.groupOf(e)
	h := w.stuck[group]
	if h == nil {
		h = &stuckRow{first: e, since: now}
		w.stuck[group] = h
	}
	told := h.err
	h.err = no.Err.Error()
	h.due = now.Add(min(minRefusedPause<<min(h.tries, 10), maxRefusedPause))
	h.tries++
	w.mu.Unlock()
	if h.err != told {
		w.t.cfg.Log.Error("database refuses the row of a deferred event: it is tried again and its key waits meanwhile, nothing is dropped",
			w.t.cfg.eventFields(&e.Event, zap.Error(no.Err))...)
	}
}

// takeDueRefused returns a refused row whose time has come.
func (w *writer) takeDueRefused(now time.Time) (*inflight.Event, bool) {
	for _, h := range w.stuck {
		if !h.due.After(now) {
			h.due = now.Add(maxRefusedPause) // until the result of this try is known
			return h.first, true
		}
	}
	return nil, false
}

// idleTime returns how long the writer may sleep if nothing arrives.
func (w *writer) idleTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return 0
	}
	d := time.Hour
	for _, h := range w.stuck {
		d = min(d, time.Until(h.due))
	}
	return d
}

// holdBackStuck leaves out the entries that are behind a refused row of their ordering group, and
// keeps them there.
func (w *writer) holdBackStuck(part []*inflight.Event) []*inflight.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.stuck) == 0 {
		return part
	}
	free := make([]*inflight.Event, 0, len(part))
	for _, e := range part {
		if h := w.stuck[w.groupOf(e)]; h != nil && h.first != e {
			h.behind = append(h.behind, e)
		} else {
			free = append(free, e)
		}
	}
	return free
}

// releaseStuck is called once a refused row is written. It puts the rows that waited behind it back
// into the queue, before all that came later.
func (w *writer) releaseStuck(e *inflight.Event) {
	if h := w.stuck[w.groupOf(e)]; h != nil && h.first == e {
		w.queue = append(h.behind, w.queue...)
		delete(w.stuck, w.groupOf(e))
	}
}

// requeue returns entries that were not tried to the queue; the last part goes first.
func (w *writer) requeue(parts [][]*inflight.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, part := range parts {
		w.queue = append(slices.Clone(part), w.queue...)
	}
}

func (w *writer) snapshot() Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Snapshot{Queued: w.events, RefusedAll: len(w.stuck)}
	for _, h := range w.stuck {
		s.Refused = append(s.Refused, RefusedRow{
			Position: h.first.Position, ID: shownID(&h.first.Event), Err: h.err, Since: h.since, Behind: len(h.behind),
		})
	}
	slices.SortFunc(s.Refused, func(a, b RefusedRow) int {
		return cmp.Or(a.Since.Compare(b.Since), a.Position.Compare(b.Position))
	})
	s.Refused = s.Refused[:min(len(s.Refused), maxShown)]
	return s
}
