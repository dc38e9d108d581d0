// How many rows there are, for status and metrics.

package retry

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// stats has the number of rows of the tables. Between two counts it follows what this leader itself
// adds and removes, because only the leader changes the tables. So a snapshot costs nothing, and
// the tables are counted seldom: every ten seconds while something changes, and for no more than a
// fiftieth of the time. (Counting a million rows at each scrape would cost PostgreSQL more than
// everything else that is done to them.) The next count corrects what stats could not know: a
// statement that was repeated, a row that somebody has removed by hand.
type stats struct {
	count func(ctx context.Context, limit int) (store.Stats, error) // nil: nothing is counted
	limit int
	pace  retryPace
	hooks *Hooks

	mu       sync.Mutex
	now      store.Stats
	deferred int // by how much it changed since the current count began
	dead     int
	moved    bool // since the last count began
}

// Between two counts.
const (
	statsEvery = 10 * time.Second // while something changes
	statsIdle  = time.Minute      // while nothing does
	statsShare = 50
)

func (t *stats) init(cfg *Config) {
	*t = stats{count: cfg.Stats, limit: store.StatsLimit, hooks: &cfg.Hooks, pace: retryPace{log: cfg.Log, what: "counting deferred events"}}
}

// run counts until ctx is done.
func (t *stats) run(ctx context.Context) {
	for t.count != nil {
		began := time.Now()
		reportWork(t.hooks.Stats, true)
		err := t.once(ctx)
		reportWork(t.hooks.Stats, false)
		if ctx.Err() != nil {
			return
		}
		rest := max(statsEvery, statsShare*time.Since(began))
		if err != nil { // perhaps counting takes too long
			t.pace.failed(err)
			t.limit = max(t.limit/4, store.StatsLimit/100)
			rest = statsEvery
		} else {
			t.pace.succeeded()
			t.limit = min(2*t.limit, store.StatsLimit)
		}
		for rested := time.Duration(0); rested == 0 || rested < statsIdle && !t.hasMoved(); rested += rest {
			if !sleep(ctx, rest) {
				return
			}
		}
	}
}

// once counts.
func (t *stats) once(ctx context.Context) error {
	t.mu.Lock()
	t.deferred, t.dead, t.moved = 0, 0, false
	t.mu.Unlock()
	counted, err := t.count(ctx, t.limit)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.moved = true
		return err
	}
	counted.Deferred = t.merge(counted.Deferred, t.deferred, t.now.Deferred)
	counted.Dead = t.merge(counted.Dead, t.dead, t.now.Dead)
	t.now = counted
	return nil
}

// merge combines a count with what changed meanwhile. The count may include those changes or not;
// merge assumes not, and the next count is right. A count that reached its limit is only a lower
// bound.
func (t *stats) merge(counted, changed, kept int) int {
	if counted >= t.limit {
		return max(counted, kept)
	}
	return max(counted+changed, 0)
}

func (t *stats) hasMoved() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved
}

func (t *stats) snapshot() store.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// add adds rows and dead letters to the counts; oldest is the first commit time of these rows.
func (t *stats) add(deferred, dead int, oldest time.Time) {
	if deferred == 0 && dead == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved = true
	t.deferred, t.dead = t.deferred+deferred, t.dead+dead
	n := &t.now
	n.Deferred, n.Dead = max(n.Deferred+deferred, 0), max(n.Dead+dead, 0)
	switch {
	case n.Deferred == 0:
		n.OldestDeferred = time.Time{}
	case deferred > 0 && (n.OldestDeferred.IsZero() || oldest.Before(n.OldestDeferred)):
		n.OldestDeferred = oldest
	}
	switch {
	case n.Dead == 0:
		n.OldestDead = time.Time{}
	case dead > 0 && n.OldestDead.IsZero():
		n.OldestDead = time.Now()
	}
}

// written notes rows that were committed.
func (t *stats) written(rows []*store.Row) (deferred, dead int) {
	var oldest time.Time
	for _, row := range rows {
		if row.Dead {
			dead++
			continue
		}
		deferred++
		if at := row.Event.CommitTime; oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	t.add(deferred, dead, oldest)
	return deferred, dead
}

// ended notes the results of rows.
func (t *stats) ended(results []store.Result) {
	gone, dead := 0, 0
	for _, r := range results {
		switch r.Kind {
		case store.Delivered:
			gone++
		case store.Dead:
			gone++
			dead++
		case store.Backoff:
		}
	}
	t.add(-gone, dead, time.Time{})
}

// answered notes what an operator's request did.
func (t *stats) answered(a store.Answer) {
	if a.Request.Row == nil {
		return
	}
	deadLetters := 0 // a dead letter that was closed before is no longer counted
	if a.Request.Open {
		deadLetters = -1
	}
	switch a.Request.Kind {
	case store.Discard:
		t.add(0, deadLetters, time.Time{})
	case store.Replay:
		if a.Outcome.State == sink.Confirmed {
			t.add(0, deadLetters, time.Time{})
		}
	case store.Purge:
		if a.Request.Row.Dead {
			t.add(0, deadLetters, time.Time{})
		} else {
			t.add(-1, 0, time.Time{})
		}
	case store.DeadLetter:
		t.add(-1, 1, time.Time{})
	case store.Retry, store.Redact:
	}
}
