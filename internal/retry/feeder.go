// The feeder: the goroutine that reads rows back for the lanes, within a budget, and commits what
// became of them.

package retry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// feeder reads rows back for the lanes, commits what became of them, walks through the table for
// ordering groups that no lane knows, and carries out operators' requests. It has no open
// transaction in the meantime. What may go, and when, the lanes' order machines decide; the feeder
// keeps two rules for them. No row is read before the writer has seen its commit. And a statement
// that may have been carried out is repeated before any other: the feeder waits for its outcome.
type feeder struct {
	t      *Table
	cfg    *Config
	duties []*duty
	logged map[string]bool // texts of rows that cannot be read, which were logged

	// rows that are with the lanes or have a result that is not committed, and requests likewise
	inFlight, requests atomic.Int32
	woken              chan struct{} // cap 1

	mu             sync.Mutex // guards what other goroutines leave here
	feedingStopped bool       // feeding has ended: nothing is read any more
	asks           laneAsks

	// The fields below belong to the feeder's goroutine.
	changePace     retryPace // of statements that change the tables
	budget         budget
	wants          []want
	readProbesLast bool // the last read was for probes
	results        uncommitted[order.Result]
	walks          []*walk
	walkDueAt      time.Time
	leftOutPaused  map[order.Target]bool // paused targets that a walk left out
	pausesVersion  uint64                // of the registry when it was looked at last
	pausesDueAt,
	oldRowsDueAt time.Time
	reclaimDueAt time.Time
	rowsDeleted  bool // rows were deleted since the last ReclaimSpace

	requestsDueAt time.Time
	answers       uncommitted[store.Answer]
	inHand        map[int64]inHand // requests that are being carried out
	answerPace    retryPace
	moreRequests  bool // the last list of requests was full
	// requests of the last list about events whose lane is not known, or that wait for reading
	waitingRequests int
	readingFor      *store.Request // its row is read, or was and is in whole
	wholeRead       *wholeRow
	readers         sync.WaitGroup
}

// laneAsks is what the lanes have asked for since the feeder looked.
type laneAsks struct {
	wants   []want
	walks   []uint64 // through these exchanges and topics
	resent  bool     // a resend has copied rows
	results []order.Result
	whole   *wholeRow // of reading
}

// want is a lane's want.
type want struct {
	order.Want
	lane int
}

func (f *feeder) init(t *Table) {
	*f = feeder{
		t: t, cfg: &t.cfg, logged: map[string]bool{}, woken: make(chan struct{}, 1), budget: budget{maxBytes: t.cfg.BudgetBytes, lanes: map[int]rowLoad{}},
		changePace: retryPace{log: t.cfg.Log, what: "changing deferred rows"},
		answerPace: retryPace{log: t.cfg.Log, what: "answering an operator's request"},
		inHand:     map[int64]inHand{}, leftOutPaused: map[order.Target]bool{},
	}
	for _, d := range []duty{
		{run: f.commitResults, afterStop: true},
		{run: f.commitAnswers, afterStop: true},
		{run: f.takeRequests, pace: retryPace{what: "reading operators' requests"}},
		{run: f.replayWhole, pace: retryPace{what: "reading the row of a replay"}},
		{run: f.readWanted, pace: retryPace{what: "reading deferred rows"}},
		{run: f.startWalksForPauses},
		{run: f.walkNextPage, pace: retryPace{what: "looking for deferred rows"}},
		{run: f.reclaimSpace, pace: retryPace{what: "giving back the space of the retry table"}},
	} {
		d.pace.log = t.cfg.Log
		f.duties = append(f.duties, &d)
	}
}

// duty is one of the feeder's tasks. A duty that fails rests for a while and does not delay the
// others.
type duty struct {
	run         func(context.Context) (did bool, err error)
	afterStop   bool // it is done even after feeding has ended
	pace        retryPace
	pausedUntil time.Time
}

func (f *feeder) run(ctx context.Context) {
	defer f.readers.Wait()
	defer reportWork(f.cfg.Hooks.Feeder, false)
	for ctx.Err() == nil {
		reportWork(f.cfg.Hooks.Feeder, true)
		f.collectAsks()
		did, err := f.doDuties(ctx)
		if errors.Is(err, store.ErrFenced) {
			f.t.endFenced()
			return
		}
		if !did {
			reportWork(f.cfg.Hooks.Feeder, false)
			f.waitForDuty(ctx)
		}
	}
}

// doDuties does each duty once, a few statements at most. So none delays the others for long. It
// returns false when there was nothing to do. Its error ends the feeder.
func (f *feeder) doDuties(ctx context.Context) (did bool, err error) {
	for _, d := range f.duties {
		if !d.afterStop && f.isFeedingStopped() || d.pausedUntil.After(time.Now()) {
			continue
		}
		reportWork(f.cfg.Hooks.Feeder, true)
		done, err := d.run(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, store.ErrFenced):
			return false, err
		case err != nil:
			d.pausedUntil = time.Now().Add(d.pace.failed(err))
		case done:
			d.pace.succeeded()
			did = true
		}
	}
	return did, nil
}

// addAsk leaves what a lane asks for. It does not block.
func (f *feeder) addAsk(leave func(*laneAsks)) {
	f.mu.Lock()
	leave(&f.asks)
	f.mu.Unlock()
	wakeOne(f.woken)
}

// collectAsks takes what the lanes have asked for.
func (f *feeder) collectAsks() {
	f.mu.Lock()
	a := f.asks
	f.asks = laneAsks{}
	f.mu.Unlock()
	f.wants = append(f.wants, a.wants...)
	if a.whole != nil {
		f.wholeRead = a.whole
	}
	for _, exchangeOrTopic := range a.walks {
		f.startWalk(walk{target: order.Target{ExchangeOrTopic: exchangeOrTopic}})
	}
	if a.resent {
		f.startWalk(walk{forResends: true})
	}
	for _, r := range a.results {
		f.takeResult(r)
	}
}

func (f *feeder) isFeedingStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feedingStopped
}

// waitForDuty waits until something arrives or is due.
func (f *feeder) waitForDuty(ctx context.Context) {
	timer := time.NewTimer(time.Until(f.nextDutyAt()))
	defer timer.Stop()
	select {
	case <-f.woken:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// nextDutyAt is the time when the next duty is due if nothing arrives.
func (f *feeder) nextDutyAt() time.Time {
	now := time.Now()
	at := now.Add(time.Minute)
	soonest := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	for _, d := range f.duties {
		if d.pausedUntil.After(now) {
			soonest(d.pausedUntil)
		}
	}
	if len(f.results.refused) > 0 {
		soonest(f.results.refusedDueAt)
	}
	if len(f.answers.refused) > 0 {
		soonest(f.answers.refusedDueAt)
	}
	if !f.isFeedingStopped() {
		soonest(f.requestsDueAt)
		if f.t.line.Pauses().AnyPaused() {
			soonest(f.pausesDueAt)
		}
		if len(f.walks) > 0 {
			soonest(f.walkDueAt)
		}
	}
	// A duty that is due and was not done waits for room, or rests. Rows that come back make room,
	// and wake the feeder.
	if soon := now.Add(10 * time.Millisecond); at.Before(soon) {
		return soon
	}
	return at
}

// budget bounds the rows that are with the lanes, or whose result is not committed.
type budget struct {
	maxBytes int64 // bytes
	total    rowLoad
	lanes    map[int]rowLoad
}

type rowLoad struct {
	rows  int
	bytes int64
}

// The limits of the budget. A lane may have half of what is free: so a stalled lane leaves room to
// others, and a lane that is alone has large batches.
const (
	budgetRows  = 10_000
	budgetBytes = 8 << 20
	probeRows   = 100 // above the limit, for probes
	maxGroups   = 500 // that one statement reads
	minFreeRows = 100 // no statement for less, while rows are with the lanes
)

func (b *budget) add(lane int, e *inflight.Event) { b.change(lane, 1, b.chargedBytes(e)) }

// remove is called when nobody needs the bytes of a row any more, and frees them. Its lane keeps
// the event until its present call ends, which may take long: without this, all that a lane gave
// back in that time stayed in memory beside the budget (TestHostileRowsDeferred).
func (b *budget) remove(lane int, e *inflight.Event) {
	b.change(lane, -1, -b.chargedBytes(e))
	e.Event = event.Event{Position: e.Position}
	if e.Request == nil { // the answer to a request needs the row's names
		e.Row.Event = e.Event
	}
}

// chargedBytes is what a row counts: a large one three quarters of the budget, so that others can
// be read while its lane stands still, and there are two such rows at most.
func (b *budget) chargedBytes(e *inflight.Event) int64 { return min(int64(e.Size), b.maxBytes*3/4) }

func (b *budget) change(lane, rows int, bytes int64) {
	of := b.lanes[lane]
	of.rows, of.bytes = of.rows+rows, of.bytes+bytes
	b.total.rows, b.total.bytes = b.total.rows+rows, b.total.bytes+bytes
	if b.lanes[lane] = of; of.rows == 0 {
		delete(b.lanes, lane)
	}
}

// freeRoom is how many rows, and how many bytes of them, may be read now; 0: none.
func (b *budget) freeRoom() (rows int, bytes int64) {
	rows, bytes = budgetRows-b.total.rows, b.maxBytes-b.total.bytes
	if b.total.rows > 0 && (rows < minFreeRows || bytes < b.maxBytes/8) {
		return 0, 0
	}
	return rows, max(bytes, 1)
}

// isFull reports whether a lane has its share.
func (b *budget) isFull(lane int) bool {
	of := b.lanes[lane]
	return of.rows > (budgetRows-b.total.rows)/2 || of.bytes > (b.maxBytes-b.total.bytes)/2
}

// readWanted reads for the wants that have waited longest, as far as there is room: half of it,
// because all may be of one lane.
func (f *feeder) readWanted(ctx context.Context) (bool, error) {
	if len(f.wants) == 0 {
		return false, nil
	}
	rows, bytes := f.budget.freeRoom()
	var taken, probes, rest []want
	for _, w := range f.wants {
		switch {
		case w.Probe && len(probes) < probeRows && f.budget.total.rows < budgetRows+probeRows:
			probes = append(probes, w)
		case w.Probe, rows == 0, len(taken) == maxGroups, f.budget.isFull(w.lane):
			rest = append(rest, w)
		default:
			taken = append(taken, w)
		}
	}
	var run int
	// they take turns with the others
	switch f.readProbesLast = len(probes) > 0 && (len(taken) == 0 || !f.readProbesLast); {
	case f.readProbesLast:
		taken, rest = probes, append(taken, rest...)
		run, bytes = 1, max(f.budget.maxBytes-f.budget.total.bytes, 1)
	case len(taken) > 0:
		rest = append(probes, rest...)
		run, bytes = max(rows/2/len(taken), 1), max(bytes/2, 1)
	default:
		return false, nil
	}
	ask := make([]store.Want, len(taken))
	for i, w := range taken {
		ask[i] = w.Want.Want
	}
	found, err := f.readParts(ctx, ask, run, bytes)
	if err != nil {
		return true, err
	}
	f.wants = rest
	for i, w := range taken {
		f.giveToLane(w.lane, f.foundOf(&found[i], w.ExchangeOrTopic))
	}
	return true, nil
}

// readParts reads rows. A damaged row, which cannot be read, must block only what is behind it in
// its ordering group. So when a read fails, it is done in parts: fewer groups, then fewer rows. A
// group whose first row cannot be read is Failed.
func (f *feeder) readParts(ctx context.Context, wants []store.Want, run int, bytes int64) ([]store.RowRun, error) {
	reportWork(f.cfg.Hooks.Feeder, true) // each part may have large rows, which take their time
	runs, err := f.cfg.Store.ReadRows(ctx, wants, run, bytes, f.t.writer.acked.Load())
	switch {
	case !store.IsRefused(err):
		return runs, err
	case len(wants) == 1 && run > 1:
		return f.readParts(ctx, wants, run/2, bytes)
	case len(wants) == 1:
		if text := err.Error(); !f.logged[text] {
			if len(f.logged) == maxGroups {
				clear(f.logged)
			}
			f.logged[text] = true
			f.cfg.Log.Error("cannot read a deferred row: it is tried again and its key waits meanwhile, nothing is dropped",
				zap.Int64("ordering_group", int64(wants[0].Group)), zap.Error(err))
		}
		return []store.RowRun{{Group: wants[0].Group, Failed: true}}, nil
	}
	half := len(wants) / 2
	if runs, err = f.readParts(ctx, wants[:half], run, bytes); err != nil {
		return nil, err
	}
	for _, r := range runs {
		for _, row := range r.Rows {
			bytes -= int64(row.Event.Size())
		}
	}
	more, err := f.readParts(ctx, wants[half:], run, max(bytes, 1))
	return append(runs, more...), err
}

// foundOf makes the answer for a lane from rows that were read. From the first row on whose place
// is not known now, rows are left out.
func (f *feeder) foundOf(r *store.RowRun, exchangeOrTopic uint64) order.Found {
	found := order.Found{Group: r.Group, ExchangeOrTopic: exchangeOrTopic, More: r.More, Blocked: r.Blocked, Failed: r.Failed}
	for i, row := range r.Rows {
		place, known := f.cfg.Sink.Place(&row.Event)
		if !known {
			found.More, found.Failed = true, i == 0
			break
		}
		e := &inflight.Event{Event: row.Event, Place: place, Size: row.Event.Size(), Row: row, Attempts: row.Attempts}
		if row.Ordered {
			e.Group = row.Group
		}
		found.Rows = append(found.Rows, e)
	}
	return found
}

// giveToLane gives what was found to a lane.
func (f *feeder) giveToLane(lane int, found order.Found) {
	for _, e := range found.Rows {
		f.budget.add(lane, e)
	}
	f.inFlight.Add(int32(len(found.Rows)))
	f.t.line.Found(lane, []order.Found{found})
}

// takeResult takes a result from a lane.
func (f *feeder) takeResult(r order.Result) {
	switch {
	case r.Request != nil:
		f.takeAnswer(r)
	case r.Returned:
		f.budget.remove(r.Event.Place.Lane, r.Event)
		f.inFlight.Add(-1)
		if r.Event.Refusal != nil {
			callHook(f.cfg.Hooks.Retried, 1)
		}
	default:
		f.results.fresh = append(f.results.fresh, r)
	}
}

// commitResults commits the results that have come, in one statement. One that the database refuses
// is tried again, and nothing passes its row meanwhile.
func (f *feeder) commitResults(ctx context.Context) (bool, error) {
	part, did, err := f.results.commit(ctx, &f.changePace, f.cfg.Hooks.Feeder, func(part []order.Result) error {
		results := make([]store.Result, len(part))
		for i := range part {
			results[i] = part[i].Result
		}
		return f.cfg.Store.ApplyResults(ctx, results)
	}, func(r order.Result, err error) bool {
		f.cfg.Log.Error("database refuses the result of a deferred row: it is tried again, and its key is blocked meanwhile",
			f.cfg.eventFields(&r.Event.Event, zap.Error(err))...)
		return true
	})
	if len(part) > 0 {
		f.finishResults(part)
	}
	return did, err
}

// finishResults tells lanes and hooks of results that are committed, and frees their room in the
// budget.
func (f *feeder) finishResults(part []order.Result) {
	f.t.stats.rowsChanged.Store(true)
	f.countResults(part)
	byLane := map[int][]order.Result{}
	for _, r := range part {
		lane := r.Event.Place.Lane
		f.budget.remove(lane, r.Event)
		byLane[lane] = append(byLane[lane], r)
	}
	f.inFlight.Add(int32(-len(part)))
	f.rowsDeleted = true
	for lane, of := range byLane {
		f.t.line.Finished(lane, of)
	}
}

// countResults reports to the hooks what became of rows.
func (f *feeder) countResults(results []order.Result) {
	var retried, noted, dead, exhausted int
	for _, r := range results {
		res := r.Result
		if res.Kind == store.Dead {
			dead++
			f.cfg.logDeadLetter(res.Row, res)
		}
		switch {
		case res.Kind == store.Delivered:
			retried++
		case r.Event.Refusal == nil: // it was too old, and not sent
		case res.Kind == store.Backoff:
			retried++
			noted++
		default:
			retried++
			if res.Class == sink.Transient {
				exhausted++
			}
		}
	}
	hooks := &f.cfg.Hooks
	callHook(hooks.Retried, retried)
	callHook(hooks.Deferred, noted)
	callHook(hooks.Dead, dead)
	callHook(hooks.Exhausted, exhausted)
}

// reclaimSpace gives the table's space back once nothing is deferred.
func (f *feeder) reclaimSpace(ctx context.Context) (bool, error) {
	now := time.Now()
	if !f.rowsDeleted || now.Before(f.reclaimDueAt) || f.t.stats.snapshot().Deferred > 0 {
		return false, nil
	}
	f.reclaimDueAt = now.Add(reclaimEvery)
	done, err := f.cfg.Store.ReclaimSpace(ctx)
	f.rowsDeleted = err != nil || done == store.ReclaimInUse // a dump, say: it is tried again
	if done == store.ReclaimTruncated {
		f.cfg.Log.Info("the retry table is empty again: its space was given back")
	}
	return err == nil, err
}

const reclaimEvery = time.Minute
