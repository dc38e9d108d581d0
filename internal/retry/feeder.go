// The feeder: the goroutine that reads rows back for the lanes and commits what became of them.

package retry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
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

	mu      sync.Mutex // guards what other goroutines leave here
	stopped bool       // feeding has ended: nothing is read any more
	asked   asked

	// The fields below belong to the feeder's goroutine.
	pace    retryPace // of statements that change the tables
	budget  budget
	wants   []want
	probed  bool // the last read was for probes
	results uncommitted[order.Result]
	walks   []*walk
	walkAt  time.Time
	skipped map[order.Target]bool // paused targets that a walk left out
	version uint64                // of the registry when it was looked at last
	pausesAt,
	oldAt time.Time
	reclaimAt time.Time
	delivered bool // rows were deleted since the last Reclaim

	requestsAt time.Time
	answers    uncommitted[store.Answer]
	inHand     map[int64]inHand // requests that are being carried out
	asking     retryPace
	moreAsked  bool // the last list of requests was full
	// requests of the last list about events whose lane is not known, or that wait for reading
	unplaced int
	reading  *store.Request // its row is read, or was and is in whole
	whole    *wholeRow
	readers  sync.WaitGroup
}

// asked is what the lanes have asked for since the feeder looked.
type asked struct {
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
		t: t, cfg: &t.cfg, logged: map[string]bool{}, woken: make(chan struct{}, 1), budget: newBudget(&t.cfg),
		pace:   retryPace{log: t.cfg.Log, what: "changing deferred rows"},
		asking: retryPace{log: t.cfg.Log, what: "answering an operator's request"},
		inHand: map[int64]inHand{}, skipped: map[order.Target]bool{},
	}
	for _, d := range []duty{
		{do: f.commit, must: true},
		{do: f.commitAnswers, must: true},
		{do: f.takeRequests, pace: retryPace{what: "reading operators' requests"}},
		{do: f.replayWhole, pace: retryPace{what: "reading the row of a replay"}},
		{do: f.read, pace: retryPace{what: "reading deferred rows"}},
		{do: f.lookAtPauses},
		{do: f.walkOn, pace: retryPace{what: "looking for deferred rows"}},
		{do: f.reclaim, pace: retryPace{what: "giving back the space of the retry table"}},
	} {
		d.pace.log = t.cfg.Log
		f.duties = append(f.duties, &d)
	}
}

// duty is one of the feeder's tasks. A duty that fails rests for a while and does not delay the
// others.
type duty struct {
	do   func(context.Context) (did bool, err error)
	must bool // it is done even after feeding has ended
	pace retryPace
	rest time.Time // until then
}

func (f *feeder) run(ctx context.Context) {
	defer f.readers.Wait()
	defer reportWork(f.cfg.Hooks.Feeder, false)
	for ctx.Err() == nil {
		reportWork(f.cfg.Hooks.Feeder, true)
		f.collect()
		did, err := f.round(ctx)
		if errors.Is(err, store.ErrFenced) {
			f.t.endFenced()
			return
		}
		if !did {
			reportWork(f.cfg.Hooks.Feeder, false)
			f.sleep(ctx)
		}
	}
}

// round does each duty once, a few statements at most. So none delays the others for long. It
// returns false when there was nothing to do. Its error ends the feeder.
func (f *feeder) round(ctx context.Context) (did bool, err error) {
	for _, d := range f.duties {
		if !d.must && f.isStopped() || d.rest.After(time.Now()) {
			continue
		}
		reportWork(f.cfg.Hooks.Feeder, true)
		done, err := d.do(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, store.ErrFenced):
			return false, err
		case err != nil:
			d.rest = time.Now().Add(d.pace.failed(err))
		case done:
			d.pace.succeeded()
			did = true
		}
	}
	return did, nil
}

// ask leaves what a lane asks for. It does not block.
func (f *feeder) ask(leave func(*asked)) {
	f.mu.Lock()
	leave(&f.asked)
	f.mu.Unlock()
	signal(f.woken)
}

// collect takes what the lanes have asked for.
func (f *feeder) collect() {
	f.mu.Lock()
	a := f.asked
	f.asked = asked{}
	f.mu.Unlock()
	f.wants = append(f.wants, a.wants...)
	if a.whole != nil {
		f.whole = a.whole
	}
	for _, exchangeOrTopic := range a.walks {
		f.startWalk(order.Target{ExchangeOrTopic: exchangeOrTopic}, false)
	}
	if a.resent {
		f.startResent()
	}
	for _, r := range a.results {
		f.takeResult(r)
	}
}

// stop ends feeding.
func (f *feeder) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	signal(f.woken)
}

func (f *feeder) isStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// sleep waits until something arrives or is due.
func (f *feeder) sleep(ctx context.Context) {
	timer := time.NewTimer(time.Until(f.nextAt()))
	defer timer.Stop()
	select {
	case <-f.woken:
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
	if len(f.results.resting) > 0 {
		soonest(f.results.restAt)
	}
	if len(f.answers.resting) > 0 {
		soonest(f.answers.restAt)
	}
	if !f.isStopped() {
		soonest(f.requestsAt)
		if f.t.line.Pauses().Any() {
			soonest(f.pausesAt)
		}
		if len(f.walks) > 0 {
			soonest(f.walkAt)
		}
	}
	// A duty that is due and was not done waits for room, or rests. Rows that come back make room,
	// and wake the feeder.
	return latest(at, now.Add(10*time.Millisecond))
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
