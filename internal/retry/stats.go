// How many rows there are, for status and metrics.

package retry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// stats counts the rows of the tables, for snapshots that cost nothing: each second while something
// changes, and for no more than a fiftieth of the time. (Counting a million rows at each scrape
// would cost PostgreSQL more than everything else that is done to them.)
type stats struct {
	count func(ctx context.Context, limit int) (store.Stats, error) // nil: nothing is counted
	limit int
	pace  retryPace
	hooks *Hooks
	moved atomic.Bool // rows were changed since the last count began

	mu  sync.Mutex
	now store.Stats
}

// Between two counts.
const (
	statsEvery = time.Second // while something changes
	statsIdle  = time.Minute // while nothing does
	statsShare = 50
	statsAgain = 10 * time.Second // after one that failed
)

func (t *stats) init(cfg *Config) {
	t.count, t.limit, t.hooks = cfg.Stats, store.StatsLimit, &cfg.Hooks
	t.pace = retryPace{log: cfg.Log, what: "counting deferred events"}
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
			rest = statsAgain
		} else {
			t.pace.succeeded()
			t.limit = min(2*t.limit, store.StatsLimit)
		}
		for rested := time.Duration(0); rested == 0 || rested < statsIdle && !t.moved.Load(); rested += rest {
			if !sleep(ctx, rest) {
				return
			}
		}
	}
}

// once counts. A count that reached its limit is only a lower bound.
func (t *stats) once(ctx context.Context) error {
	t.moved.Store(false)
	counted, err := t.count(ctx, t.limit)
	if err != nil {
		t.moved.Store(true)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range []struct{ counted, before *int }{{&counted.Deferred, &t.now.Deferred}, {&counted.Dead, &t.now.Dead}} {
		if *n.counted >= t.limit {
			*n.counted = max(*n.counted, *n.before)
		}
	}
	t.now = counted
	return nil
}

func (t *stats) snapshot() store.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}
