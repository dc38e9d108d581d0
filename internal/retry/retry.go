// Package retry is the retry table. It writes events that cannot be sent now into tables of the
// source database, and reads them back when the lanes' order machines ask for them.
//
//	lane ── Defer ─▶ writer ── INSERT ─▶ retry ── SELECT ─▶ feeder ── Found ─▶ lane
//	  ▲                │                                     │  ▲                │
//	  └── Committed ───┘                   DELETE, UPDATE ◀──┘  └── Read, Finish ┘
//
// Run has two main goroutines. The writer owns the INSERTs, the feeder everything else that changes
// the tables. (A third goroutine counts rows, a fourth reads the large row of a replay.) Each
// method of the Store is one statement under the fence, so a former leader changes nothing (I9).
package retry

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Table takes events that cannot be sent now. It implements relay.RetryTable.
type Table struct {
	cfg               Config
	line              Line
	writer            writer
	feeder            feeder
	stats             stats
	repeatedPositions repeatedPositions

	once   sync.Once
	fenced chan struct{} // closed when a newer leader has fenced this one
}

var _ relay.RetryTable = (*Table)(nil)

// New makes a retry table. It starts nothing; Load comes next.
func New(cfg Config) *Table {
	cfg.RoundBytes, cfg.BudgetBytes = cmp.Or(cfg.RoundBytes, roundBytes), cmp.Or(cfg.BudgetBytes, budgetBytes)
	cfg.Log = cmp.Or(cfg.Log, zap.NewNop())
	t := &Table{cfg: cfg, fenced: make(chan struct{})}
	t.writer.init(t)
	t.feeder.init(t)
	t.stats.init(&t.cfg)
	t.repeatedPositions.pace = retryPace{log: cfg.Log, what: "looking up deferred positions"}
	return t
}

// Run writes and feeds until ctx is done, and returns nil then. An error is an *event.Stop: a newer
// leader has fenced this one.
func (t *Table) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { t.writer.run(ctx) })
	all.Go(func() { t.feeder.run(ctx) })
	all.Go(func() {
		// not at once: the feeder asks its first questions in the session that the start has left
		if sleep(ctx, statsFirst) {
			t.stats.run(ctx, t.pausedPlaces)
		}
	})
	select {
	case <-ctx.Done():
	case <-t.fenced:
		cancel()
	}
	all.Wait()
	select {
	case <-t.fenced:
		return t.fencedStop()
	default:
		return nil
	}
}

// Defer queues events whose rows are to be written. It does not block.
func (t *Table) Defer(events []*inflight.Event) {
	w := &t.writer
	w.mu.Lock()
	w.queue = append(w.queue, events...)
	w.events += len(events)
	w.mu.Unlock()
	wakeOne(w.woken)
}

// Read takes a lane's wants.
func (t *Table) Read(lane int, wants []order.Want, walks []uint64) {
	t.feeder.addAsk(func(a *laneAsks) {
		for _, w := range wants {
			a.wants = append(a.wants, want{w, lane})
		}
		a.walks = append(a.walks, walks...)
	})
}

// Resent tells that a resend has copied rows, which no lane knows: they are looked for.
func (t *Table) Resent() { t.feeder.addAsk(func(a *laneAsks) { a.resent = true }) }

// Finish takes the results of rows that were with a lane.
func (t *Table) Finish(results []order.Result) {
	t.feeder.addAsk(func(a *laneAsks) { a.results = append(a.results, results...) })
}

// StopFeeding ends feeding, for a stop: no row is offered after it has returned. Rows that are with
// the lanes are still taken back, and their results are still committed.
func (t *Table) StopFeeding() {
	f := &t.feeder
	f.mu.Lock()
	f.feedingStopped = true
	f.mu.Unlock()
	wakeOne(f.woken)
}

// WaitIdle returns nil once nothing is in flight: no row to be written, none with the lanes, no
// result to be committed. Otherwise it returns ctx's error. It is for a stop, after StopFeeding.
func (t *Table) WaitIdle(ctx context.Context) error {
	for t.writer.hasEvents() || t.feeder.inFlight.Load() > 0 || t.feeder.requests.Load() > 0 {
		if !sleep(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// Snapshot is cheap enough to be called at each scrape.
func (t *Table) Snapshot() Snapshot {
	shot := t.writer.snapshot()
	shot.InFlight = int(t.feeder.inFlight.Load())
	shot.Stats = t.stats.snapshot()
	return shot
}

// Line is what the retry table needs of the line; *relay.Line is it. None of its methods blocks.
type Line interface {
	// Committed tells that the rows of these events are committed. The events are no longer valid.
	Committed(events []*inflight.Event)
	// Found gives what was found in the tables to a lane, or to all (order.AllLanes). Lanes that
	// come later are told what all are unsure about.
	Found(lane int, found []order.Found)
	// Finished gives committed results back to their lane.
	Finished(lane int, results []order.Result)
	// Pauses is the registry of paused destinations.
	Pauses() *order.Pauses
}

// Router is the part of a sink.Sink that knows where events belong.
type Router interface {
	Place(ev *event.Event) (p sink.Place, ok bool)
	Route(ev *event.Event) event.Route
}

// Config is the configuration of a Table. Zero values of RoundBytes, BudgetBytes and Log take
// the defaults.
type Config struct {
	Slot        string // for the error when fenced
	Epoch       int64  // likewise, and to tell replays that an earlier leader has begun
	Incarnation int64  // of the slot: part of the name of its rows
	Store       store.Store
	Sink        Router
	Scope       event.Scope // by delivery.ordering

	Block bool // a dead letter blocks the later events of its ordering group
	// events of a refusing destination become dead letters after it; 0: never
	DestinationMaxAge time.Duration

	// Stats counts rows, for Snapshot, and those that wait for paused destinations; nil: nothing is
	// counted. It is called from time to time.
	Stats func(ctx context.Context, limit int, paused []sink.Place) (store.Stats, error)

	// ReadRow reads the whole event of which a dead letter lacks values (Event.LeftOut) from its
	// outbox table. why: it cannot be had, until somebody changes something; an error may pass. It
	// may take minutes.
	ReadRow func(ctx context.Context, ev *event.Event) (whole *event.Event, why string, err error)

	// RoundBytes (2 MiB) bounds the rows of one Defer; a larger row goes alone. BudgetBytes (8 MiB)
	// bounds the rows that are read and whose result is not committed; one larger row may exceed
	// it. The simulation makes both small.
	RoundBytes, BudgetBytes int64

	Hooks Hooks
	Log   *zap.Logger
	// Traceparent is what an event's message carries, for the log; nil: the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
}

// Hooks report what happens; nil hooks are skipped. They run on the goroutines of the writer and
// the feeder, and must be quick.
type Hooks struct {
	// rows were committed in the retry table: new ones, and existing ones with a new rejection
	Deferred func(rows int)
	Dead     func(rows int) // rows were committed in, or moved to, the dead letters
	// DeadLettered: each event of Dead, with the reason ("" when an operator requested it) and its
	// attempts that count. The event is valid until the hook returns.
	DeadLettered func(ev *event.Event, reason sink.Reason, attempts int)
	Exhausted    func(rows int) // those among Dead whose attempts were spent
	Retried      func(rows int) // rows of the retry table were sent, and confirmed or refused
	// rows and dead letters were rejected and nothing was written: they are sent again, or
	// requested again
	Failed func(rows int)
	Erased func() // the contents of a dead letter were removed: redact, purge

	// Each of these goroutines calls its hook with true when it begins work, and with false before
	// it waits for work. All work is bounded: a statement by its timeout, on our side too. So a
	// goroutine that reports nothing for minutes is stuck.
	Writer, Feeder, Stats func(atWork bool)
}

// reportWork calls one of these hooks, if it is set.
func reportWork(hook func(atWork bool), atWork bool) {
	if hook != nil {
		hook(atWork)
	}
}

// Snapshot is the state of the retry table; its parts may be of slightly different moments.
type Snapshot struct {
	Queued     int // events whose rows are not committed yet
	InFlight   int // rows that were read, and whose result is not committed yet
	Refused    []RefusedRow
	RefusedAll int // how many refused rows there are; Refused lists the first of them
	Stats      store.Stats
}

// RefusedRow is a row that the database refuses. It is tried again, and the later rows of its
// ordering group wait behind it.
type RefusedRow struct {
	Position event.Position
	ID       string // its first 200 bytes
	Err      string
	Since    time.Time
	Behind   int // rows that wait behind it
}

// callHook calls a hook, if there is one and something to report.
func callHook(hook func(int), n int) {
	if hook != nil && n > 0 {
		hook(n)
	}
}

// uncommitted is what waits to be committed together. What the database refuses is tried in halves;
// the one at fault stands alone in the end, and is tried again for ever.
type uncommitted[T any] struct {
	fresh        []T
	parts        [][]T     // halves of what was refused
	refused      []T       // refused alone
	refusedDueAt time.Time // when these are tried again, each alone
}

// takeNext takes what is committed next.
func (u *uncommitted[T]) takeNext() (part []T) {
	if len(u.parts) == 0 && len(u.refused) > 0 && !u.refusedDueAt.After(time.Now()) {
		for i := range u.refused {
			u.parts = append(u.parts, u.refused[i:i+1])
		}
		u.refused = nil
	}
	if n := len(u.parts); n > 0 {
		part, u.parts = u.parts[n-1], u.parts[:n-1]
	} else {
		part, u.fresh = u.fresh, nil
	}
	return part
}

// commit commits what is next, in one statement, and returns what was committed. What the database
// refuses is halved. For a single one that it refuses it calls alone, whose result says whether
// that is tried again.
func (u *uncommitted[T]) commit(ctx context.Context, pace *retryPace, working func(atWork bool), do func([]T) error, alone func(T, error) (again bool)) (done []T, did bool, err error) {
	part := u.takeNext()
	if len(part) == 0 {
		return nil, false, nil
	}
	err = pace.untilKnown(ctx, working, func() error { return do(part) })
	half := len(part) / 2
	switch {
	case err == nil:
		return part, true, nil
	case !store.IsRefused(err):
		return nil, false, err
	case half > 0:
		u.parts = append(u.parts, part[half:], part[:half])
	case alone(part[0], err):
		if len(u.refused) == 0 {
			u.refusedDueAt = time.Now().Add(maxPause)
		}
		u.refused = append(u.refused, part...)
	}
	return nil, true, nil
}

// retryPace sets the pauses between the tries of a failing statement, and logs each error text
// once.
type retryPace struct {
	log    *zap.Logger
	what   string
	fails  int
	logged string
}

// untilKnown repeats a statement that changes the tables until its outcome is known: nil, or a
// *Refused. Any other error is final: fenced, or ctx is done. Nothing else is done meanwhile.
// Otherwise a later row might be written before an earlier one, rows that were deleted might be
// read once more, and requests that were answered might be carried out twice. working is the hook
// of the goroutine.
func (p *retryPace) untilKnown(ctx context.Context, working func(atWork bool), do func() error) error {
	for {
		reportWork(working, true)
		err := do()
		switch {
		case err == nil:
			p.succeeded()
			return nil
		case store.IsRefused(err), errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() != nil || !sleep(ctx, p.failed(err)):
			return ctx.Err()
		}
	}
}

// The pause after a statement that failed: doubling.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// failed logs the error and returns how long to wait before the next try.
func (p *retryPace) failed(err error) time.Duration {
	if text := err.Error(); text != p.logged {
		p.logged = text
		p.log.Warn(p.what+" failed: it is tried again, nothing is lost", zap.Error(err))
	}
	p.fails++
	return min(minPause<<min(p.fails-1, 10), maxPause)
}

func (p *retryPace) succeeded() {
	if p.logged != "" {
		p.log.Info(p.what + " works again")
	}
	p.fails, p.logged = 0, ""
}

// sleep waits; it returns false when ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wakeOne wakes the one goroutine that waits on a channel of capacity 1.
func wakeOne(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// logDeadLetter logs a dead letter and calls the hook. (The log samples a flood of them.)
func (c *Config) logDeadLetter(row *store.Row, r store.Result) {
	if hook := c.Hooks.DeadLettered; hook != nil {
		hook(&row.Event, cmp.Or(r.Reason, row.Reason), r.Attempts)
	}
	c.Log.Warn("event became a dead letter: `cdc-relay dead-letters` lists, replays and discards it", c.eventFields(&row.Event,
		zap.Int64("n", row.N), zap.String("class", r.Class.String()), zap.String("reason", string(r.Reason)),
		zap.String("destination", r.Destination), zap.String("fault", r.Text))...)
}

// writtenResult is the result with which a row was first written.
func writtenResult(row *store.Row) store.Result {
	return store.Result{Row: row, Class: row.Class, Reason: row.Reason, Text: row.Text, Destination: row.Destination, Attempts: row.Attempts}
}

// traceFields returns the log fields by which an event's trace is found: those of the span that its
// message names.
func (c *Config) traceFields(ev *event.Event) []zap.Field {
	text := ev.Traceparent
	if c.Traceparent != nil {
		text = c.Traceparent(ev, nil)
	}
	at, ok := event.ParseTraceparent(text)
	if !ok {
		return nil
	}
	return []zap.Field{zap.String("trace_id", at.TraceID()), zap.String("span_id", at.SpanID())}
}

// eventFields returns the log fields of an event.
func (c *Config) eventFields(ev *event.Event, more ...zap.Field) []zap.Field {
	fields := []zap.Field{zap.Stringer("position", ev.Position)}
	if ev.ID != nil {
		fields = append(fields, zap.String("event_id", shownID(ev)))
	}
	return append(append(fields, c.traceFields(ev)...), more...)
}

// shownID is the part of an event's id that logs show.
func shownID(ev *event.Event) string { return string(ev.ID[:min(len(ev.ID), 200)]) }
