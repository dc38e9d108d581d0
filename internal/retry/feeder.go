// The feeder: the goroutine that brings rows back through the lanes.

package retry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// feeder brings rows back through the lanes. It reads the first rows of ordering groups (runs),
// offers them, and commits their results. It has no open transaction in the meantime.
//
// Order within an ordering group rests on four rules. (1) An ordering group has one run at a time,
// and the next run is read after the results of the previous one are committed. (2) A run has the
// first rows of its ordering group: no earlier row is left out. (3) No row is read before the
// writer has seen its commit. (4) A statement that may have been carried out is repeated before any
// other statement.
//
// No ordering group is forgotten. At any time each one that has rows is in one of these states: it
// is in flight, in ready, or in later; its first row has a NextAttempt, and Due lists it; the place
// of its first row is paused, and the end of the pause starts a sweep; an open dead letter blocks
// it, and the answer that closes the dead letter makes it ready; or its first row is not
// acknowledged yet, and the writer reports the row once it is. If a list is full, a sweep over
// everything finds the ordering group.
type feeder struct {
	s      *Table
	cfg    *Config
	duties []*duty
	logged map[string]bool // error texts that were logged

	outstanding atomic.Int32 // runs and replays whose results are not committed
	inFlight    atomic.Int32 // rows of runs

	woken chan struct{} // cap 1

	mu            sync.Mutex // guards what other goroutines leave here
	stopped       bool       // feeding has ended: nothing is offered
	returned      []*relay.Fed
	notifications []notification
	missed        bool     // there was no room for some notifications
	refused       []uint64 // ordering groups whose first row the database refuses

	// The fields below belong to the feeder's goroutine.
	unknown *statement // its outcome is unknown: this statement is repeated before any other
	groups  [][]*run   // runs whose results were refused together, and are tried in parts
	done    []*run     // all rows are back, their results are not committed
	feds    map[*relay.Fed]*run
	runs    map[uint64]*run // ordering groups in flight
	rows    int             // of runs
	bytes   int64
	lanes   map[int]int // rows of each lane
	offered int         // rows, ever
	taken   int         // ordering groups from ready, ever
	ready   ready
	later   []later
	// ordering groups that cannot be read: skipped until then
	unread map[uint64]time.Time
	owed   map[uint64]owing
	// for exchanges or topics counted as a whole; the value is one of their ordering groups
	owedWhole map[owing]uint64

	probes  map[target]*probe
	resumed bool
	moved   bool // a row now goes to another destination than the table says
	probeAt time.Time
	findAt  time.Time // no search for a probe before

	sweeps      []*sweep
	swept       bool // a page was read since the last feeding
	sweepAt     time.Time
	sweepCost   time.Duration // of statements since the last page
	sweepBefore int           // offered at the last page

	dueAt time.Time
	ageAt time.Time
	aging []*walk

	requestsAt time.Time
	// the requests whose dead letter is with a lane, or whose answer is not committed
	replays   map[int64]*run
	answers   []store.Answer   // of replays
	answersAt time.Time        // their statement was refused: it is not repeated before this time
	split     [][]store.Answer // answers that were refused together, and are tried in parts
	asked     retryPace
}

// The budget of rows with the lanes.
const (
	maxRun      = relay.Run // rows of an ordering group; at this number a lane may cut it over
	budgetRows  = 2000
	budgetBytes = 8 << 20
	probeRows   = 100 // of these are reserved for probes
	laneRows    = 500 // of one lane: a stalled one leaves the budget to others
	maxGroups   = 500 // that one call of feed reads
)

// later is an ordering group to read again after a while.
type later struct {
	at    time.Time
	group uint64
}

// owing is a lane and an exchange or topic that may keep new events of an ordering group in memory,
// because only a few rows of it are left (cut-over). These events wait until the rows are gone. So
// the feeder owes the lane a row, or a call of NotNow if no row may go.
type owing struct {
	lane            int
	exchangeOrTopic uint64
}

func (f *feeder) init(t *Table) {
	*f = feeder{
		s: t, cfg: &t.cfg, logged: map[string]bool{}, woken: make(chan struct{}, 1),
		feds: map[*relay.Fed]*run{}, runs: map[uint64]*run{}, lanes: map[int]int{}, ready: newReady(),
		asked: retryPace{log: t.cfg.Log, what: "answering an operator's request"},
		owed:  map[uint64]owing{}, owedWhole: map[owing]uint64{}, unread: map[uint64]time.Time{}, probes: map[target]*probe{}, replays: map[int64]*run{},
	}
	for _, d := range []duty{
		{do: f.again, must: true},
		{do: f.commitRuns, must: true},
		{do: f.commitAnswers, must: true},
		{do: f.sweepResumed},
		{do: f.takeRequests},
		{do: f.readyDue},
		{do: f.probe},
		{do: f.findProbe},
		{do: f.age},
		{do: f.sweepOn},
		{do: f.feed},
	} {
		f.duties = append(f.duties, &d)
	}
}

// duty is one of the feeder's tasks. At first the duties are in the order of their urgency. A duty
// that fails rests for a while and does not delay the others.
type duty struct {
	do    func(context.Context) (did bool, err error)
	must  bool // it is done even after feeding has ended
	fails int
	rest  time.Time // until then
}

func (f *feeder) run(ctx context.Context) {
	f.sweep(target{})
	defer reportWork(f.cfg.Hooks.Feeder, false)
	for ctx.Err() == nil {
		reportWork(f.cfg.Hooks.Feeder, true)
		f.collect()
		did, err := f.step(ctx)
		if errors.Is(err, store.ErrFenced) {
			f.s.endFenced()
			return
		}
		if !did {
			reportWork(f.cfg.Hooks.Feeder, false)
			f.sleep(ctx)
		}
	}
}

// step does the most urgent duty; it returns false when there is nothing to do now. A duty takes a
// few statements at most. The error is that of the duty that failed. A duty that did something
// becomes the least urgent one, unless it must be done. So a duty that always finds work does not
// delay the others.
func (f *feeder) step(ctx context.Context) (did bool, err error) {
	stopped := f.isStopped()
	for i, d := range f.duties {
		if i > 0 && f.unknown != nil {
			return false, nil
		}
		if stopped && !d.must || d.rest.After(time.Now()) {
			continue
		}
		reportWork(f.cfg.Hooks.Feeder, true)
		did, err := d.do(ctx)
		switch {
		case ctx.Err() != nil:
			return false, err
		case err != nil && f.unknown != nil:
			f.failed(f.duties[0], err) // the statement is repeated
		case err != nil:
			f.failed(d, err)
		case did && d.fails > 0:
			f.succeeded(d)
		}
		if did || err != nil {
			if !d.must {
				f.duties = append(slices.Delete(f.duties, i, i+1), d)
			}
			return true, err
		}
	}
	return false, nil
}

// failed makes a duty rest, and logs each error text once.
func (f *feeder) failed(d *duty, err error) {
	d.fails++
	d.rest = time.Now().Add(pause(d.fails))
	if text := err.Error(); !f.logged[text] {
		f.logged[text] = true
		f.cfg.Log.Warn("feeding deferred rows failed: it is tried again, nothing is lost", zap.Error(err))
	}
}

// succeeded logs that feeding works again, once all duties do.
func (f *feeder) succeeded(d *duty) {
	d.fails = 0
	if !slices.ContainsFunc(f.duties, func(d *duty) bool { return d.fails > 0 }) || len(f.logged) > maxShown {
		clear(f.logged)
		f.cfg.Log.Info("feeding deferred rows works again")
	}
}

// sleep waits until something arrives or is due.
func (f *feeder) sleep(ctx context.Context) {
	timer := time.NewTimer(time.Until(f.nextAt()))
	defer timer.Stop()
	select {
	case <-f.woken:
	case <-f.s.line.Resumed():
		f.resumed = true
	case <-timer.C:
	case <-ctx.Done():
	}
}

// nextAt is the time when the next duty is due if nothing arrives.
func (f *feeder) nextAt() time.Time {
	now := time.Now()
	at := now.Add(time.Minute)
	soonest := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	for _, d := range f.duties {
		if d.rest.After(now) {
			soonest(d.rest)
		}
	}
	if f.unknown != nil {
		return f.duties[0].rest
	}
	for _, r := range f.done {
		soonest(r.retryAt)
	}
	if len(f.answers) > 0 {
		soonest(f.answersAt)
	}
	// A duty that is due and was not done waits for room, or rests. Rows that come back make room,
	// and wake the feeder.
	least := 10 * time.Millisecond
	if rows, _ := f.room(); rows == 0 {
		least = 100 * time.Millisecond
	}
	if !f.isStopped() {
		f.nextDuty(soonest)
	}
	if at.Before(now.Add(least)) {
		return now.Add(least)
	}
	return at
}

// nextDuty reports when the duties are due that are only done while rows are fed.
func (f *feeder) nextDuty(soonest func(time.Time)) {
	soonest(f.requestsAt)
	soonest(f.dueAt)
	for _, l := range f.later {
		soonest(l.at)
	}
	if len(f.probes) > 0 {
		soonest(f.probeAt)
		soonest(f.findAt)
		if f.cfg.DestinationMaxAge > 0 {
			soonest(f.ageAt)
		}
	}
	if len(f.sweeps) > 0 {
		soonest(f.sweepAt)
	}
}
