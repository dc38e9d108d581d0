package retry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func TestStatsBetweenCounts(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var tl stats
	wants := func(deferred, dead int, oldest time.Time) {
		t.Helper()
		if now := tl.snapshot(); now.Deferred != deferred || now.Dead != dead || !now.OldestDeferred.Equal(oldest) || (dead == 0) != now.OldestDead.IsZero() {
			t.Errorf("it is %+v, want %d rows, the oldest of %s, and %d dead letters", now, deferred, oldest, dead)
		}
	}
	row := func(minute int, dead bool) *store.Row {
		return &store.Row{Dead: dead, Event: event.Event{CommitTime: noon.Add(time.Duration(minute) * time.Minute)}}
	}
	rows := []*store.Row{row(2, false), row(1, false), row(0, true), row(3, false)}
	if deferred, dead := tl.written(rows); deferred != 3 || dead != 1 {
		t.Errorf("%d rows and %d dead letters were written, want 3 and 1", deferred, dead)
	}
	wants(3, 1, noon.Add(time.Minute))
	tl.written(rows[:1])
	tl.ended([]store.Result{{Row: rows[0], Kind: store.Delivered}, {Row: rows[1], Kind: store.Dead}, {Row: rows[3], Kind: store.Backoff}})
	wants(2, 2, noon.Add(time.Minute)) // the next count knows the oldest

	deadLetter := func(kind store.RequestKind, open bool) store.Answer {
		return store.Answer{Request: store.Request{Kind: kind, Row: row(0, true), Open: open}}
	}
	deferred := func(kind store.RequestKind) store.Answer {
		return store.Answer{Request: store.Request{Kind: kind, Row: row(0, false)}}
	}
	for _, nothing := range []store.Answer{
		{Request: store.Request{Kind: store.Discard}}, deadLetter(store.Replay, true), deadLetter(store.Redact, true), deadLetter(store.Purge, false), deferred(store.Retry),
	} {
		tl.answered(nothing)
		wants(2, 2, noon.Add(time.Minute))
	}
	tl.answered(deferred(store.DeadLetter))
	wants(1, 3, noon.Add(time.Minute))
	tl.answered(deadLetter(store.Discard, true))
	tl.answered(deadLetter(store.Purge, true))
	confirmed := deadLetter(store.Replay, true)
	confirmed.Outcome.State = sink.Confirmed
	tl.answered(confirmed)
	wants(1, 0, noon.Add(time.Minute))
	tl.answered(deferred(store.Purge))
	wants(0, 0, time.Time{})
	tl.ended([]store.Result{{Row: rows[0], Kind: store.Delivered}}) // it was not there any more
	wants(0, 0, time.Time{})
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
		time.Sleep(59 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(1, 0)
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(2, time.Minute)
		s.stats.add(1, 0, time.Now())
		if now := s.stats.snapshot(); now.Deferred != 6 {
			t.Errorf("%d rows are known at once, want 6", now.Deferred)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(3, 70*time.Second)
		if now := s.stats.snapshot(); now.Deferred != 5 {
			t.Errorf("%d rows are known after the count, want 5", now.Deferred)
		}
		cost.Store(int64(2 * time.Second))
		s.stats.add(1, 0, time.Now())
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(4, 80*time.Second)
		time.Sleep(time.Second)       //nolint:forbidigo // the bubble's time, not ours
		s.stats.add(2, 0, time.Now()) // while it is counted
		time.Sleep(2 * time.Second)   //nolint:forbidigo // the bubble's time, not ours
		if now := s.stats.snapshot(); now.Deferred != 7 {
			t.Errorf("%d rows are known, want those counted and those that came meanwhile: 7", now.Deferred)
		}
		time.Sleep(90 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(4, 80*time.Second)
		cost.Store(0)
		fails.Store(true)
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(5, 182*time.Second)
		if now := s.stats.snapshot(); now.Deferred != 7 || now.At.IsZero() {
			t.Errorf("after a count that failed it is %+v", now)
		}
		fails.Store(false)
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		s.stats.add(1, 0, time.Now())
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		wants(7, 202*time.Second)
		if want := []int{store.StatsLimit, store.StatsLimit / 4, store.StatsLimit / 2}; !slices.Equal(limits[4:], want) {
			t.Errorf("the limits were %v, want %v: less after a count that failed", limits[4:], want)
		}
		end()
	})
}

// A count that reached its limit does not lower the numbers.
func TestStatsAtItsLimit(t *testing.T) {
	tl := stats{limit: 10, count: func(context.Context, int) (store.Stats, error) { return store.Stats{Deferred: 10, Dead: 9}, nil }}
	if err := tl.once(t.Context()); err != nil || tl.now.Deferred != 10 || tl.now.Dead != 9 {
		t.Errorf("at first it is %+v, %v", tl.now, err)
	}
	tl.add(15, 3, time.Now())
	if err := tl.once(t.Context()); err != nil || tl.now.Deferred != 25 || tl.now.Dead != 9 {
		t.Errorf("then it is %+v, %v", tl.now, err)
	}
}
