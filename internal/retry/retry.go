// Package retry is the retry table: it takes what cannot go now, keeps it in the tables of the
// source database, and feeds it back through the lanes when it may go.
//
//	lane ── Defer ─▶ writer ── INSERT ─▶ retry ── runs ─▶ feeder ── Offer ─▶ lane
//	  ▲                │                                   │  ▲               │
//	  └── Settled ─────┘                        DELETE ◀───┘  └───── Fed ─────┘
//
// Two goroutines under Run: the writer owns the INSERTs, the feeder everything else that changes
// the tables. (A third counts.) Each method of the Store is one statement under the fence, so a
// former leader changes nothing (I9).
package retry

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay"
)

// Table takes what cannot go now. It implements relay.RetryTable.
type Table struct {
	cfg      Config
	line     Line
	writer   writer
	feeder   feeder
	stats    stats
	repeated repeatedPositions

	once   sync.Once
	fenced chan struct{} // closed when a newer leader was met
}

var _ relay.RetryTable = (*Table)(nil)

// New makes a retry table. It starts nothing; Load comes next.
func New(cfg Config) *Table {
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, 20)
	cfg.Backoff = cmp.Or(cfg.Backoff, time.Second)
	cfg.MaxBackoff = max(cmp.Or(cfg.MaxBackoff, 10*time.Minute), cfg.Backoff)
	cfg.RoundBytes, cfg.BudgetBytes = cmp.Or(cfg.RoundBytes, roundBytes), cmp.Or(cfg.BudgetBytes, budgetBytes)
	cfg.Log = cmp.Or(cfg.Log, zap.NewNop())
	if cfg.Jitter == nil {
		cfg.Jitter = jitter
	}
	s := &Table{cfg: cfg, fenced: make(chan struct{})}
	s.writer.init(s)
	s.feeder.init(s)
	s.stats.init(&s.cfg)
	s.repeated.pace = retryPace{log: cfg.Log, what: "looking up deferred positions"}
	return s
}

// Run writes and feeds until ctx is done, and returns nil then. An error is an *event.Stop: a newer
// leader has fenced this one.
func (s *Table) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.writer.run(ctx) })
	all.Go(func() { s.feeder.run(ctx) })
	all.Go(func() { s.stats.run(ctx) })
	select {
	case <-ctx.Done():
	case <-s.fenced:
		cancel()
	}
	all.Wait()
	select {
	case <-s.fenced:
		return s.stop()
	default:
		return nil
	}
}

// Defer takes over events whose rows are to be written.
func (s *Table) Defer(events []*relay.Deferred) { s.writer.take(events) }

// Fed takes back rows that were offered.
func (s *Table) Fed(rows []*relay.Fed) { s.feeder.takeBack(rows) }

// StopFeeding ends feeding, for a stop: no row is offered after it returned. Rows that are with the
// lanes are still taken back, and what came of them is still committed.
func (s *Table) StopFeeding() { s.feeder.stop() }

// WaitIdle returns nil once nothing is in flight: no row to be written, none with the lanes, no
// result to be committed. Otherwise it returns ctx's error. It is for a stop, after StopFeeding.
func (s *Table) WaitIdle(ctx context.Context) error {
	for s.writer.busy() || s.feeder.outstanding.Load() > 0 {
		if !slept(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// Snapshot is cheap enough to be asked for at each scrape.
func (s *Table) Snapshot() Snapshot {
	shot := s.writer.snapshot()
	shot.InFlight = int(s.feeder.inFlight.Load())
	shot.Stats = s.stats.snapshot()
	return shot
}
