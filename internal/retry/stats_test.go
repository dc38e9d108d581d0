package retry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Rows that are written, their results, and what an operator's request did are counted within a
// second.
func TestStatsFollow(t *testing.T) {
	var db *fixture
	count := func(context.Context, int) (store.Stats, error) {
		return store.Stats{At: time.Now(), Deferred: len(db.db.Deferred(slot)), Dead: strings.Count(db.deadLetters(), ":open")}, nil
	}
	inBubble(t, Config{Stats: count}, func(f *fixture) {
		db = f
		wants := func(deferred, dead int) {
			t.Helper()
			f.pass(1100 * time.Millisecond)
			if now := f.table.Snapshot().Stats; now.Deferred != deferred || now.Dead != dead {
				t.Errorf("it is %+v, want %d rows and %d dead letters", now, deferred, dead)
			}
		}
		f.handed("1 k x/a", "2 j x/a", "3 i x/a")
		wants(3, 0)
		f.line.finish("delivered", "1")
		wants(2, 0)
		f.line.finish("dead", "2")
		wants(1, 1)
		f.ask(store.Discard, "2")
		f.pass(requestsEvery)
		wants(1, 0)
	})
}

// The tables are counted while something changes and now and then; a count that takes long is made
// seldom, one that fails keeps what is known.
func TestStatsCountsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts []time.Duration // since the beginning
		began := time.Now()
		var cost atomic.Int64
		var fails atomic.Bool
		var s Table
		var mu sync.Mutex // counts are made while the test reads this
		var limits []int
		s.cfg.Stats = func(_ context.Context, limit int) (store.Stats, error) {
			mu.Lock()
			counts, limits = append(counts, time.Since(began).Truncate(time.Second)), append(limits, limit)
			mu.Unlock()
			time.Sleep(time.Duration(cost.Load())) //nolint:forbidigo // the bubble's time, not ours
			if fails.Load() {
				return store.Stats{}, errors.New("no answer")
			}
			return store.Stats{At: time.Now(), Deferred: min(5, limit)}, nil
		}
		s.stats.init(&s.cfg)
		s.stats.pace.log = zap.NewNop()
		run, end := context.WithCancel(t.Context())
		go s.stats.run(run)
		pass := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's time, not ours
		wants := func(n int, at time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(counts) != n || counts[n-1] != at {
				t.Fatalf("it was counted at %v, want the %dth time at %s", counts, n, at)
			}
		}
		wants(1, 0)
		pass(59 * time.Second)
		wants(1, 0)
		pass(time.Second)
		wants(2, time.Minute)
		s.stats.moved.Store(true)
		pass(time.Second)
		wants(3, 61*time.Second)
		cost.Store(int64(2 * time.Second))
		s.stats.moved.Store(true)
		pass(time.Second)
		wants(4, 62*time.Second)
		pass(time.Second)
		s.stats.moved.Store(true) // while it is counted
		pass(100 * time.Second)
		wants(4, 62*time.Second)
		cost.Store(0)
		fails.Store(true)
		pass(time.Second)
		wants(5, 164*time.Second)
		if now := s.stats.snapshot(); now.Deferred != 5 || now.At.IsZero() {
			t.Errorf("after a count that failed it is %+v", now)
		}
		fails.Store(false)
		pass(10500 * time.Millisecond)
		s.stats.moved.Store(true)
		pass(time.Second)
		wants(7, 175*time.Second)
		if want := []int{store.StatsLimit, store.StatsLimit / 4, store.StatsLimit / 2}; !slices.Equal(limits[4:], want) {
			t.Errorf("the limits were %v, want %v: less after a count that failed", limits[4:], want)
		}
		end()
	})
}

// A count that reached its limit does not lower the numbers.
func TestStatsAtItsLimit(t *testing.T) {
	s := stats{now: store.Stats{Deferred: 25, Dead: 12}, count: func(_ context.Context, limit int) (store.Stats, error) {
		return store.Stats{Deferred: limit, Dead: 9}, nil
	}}
	for limit, want := range map[int]int{10: 25, 40: 40} {
		s.now.Deferred, s.limit = 25, limit
		if err := s.once(t.Context()); err != nil || s.now.Deferred != want || s.now.Dead != 9 {
			t.Errorf("with a limit of %d it is %+v, %v", limit, s.now, err)
		}
	}
}
