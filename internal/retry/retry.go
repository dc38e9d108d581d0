// Package retry is the retry table. It takes events that cannot be sent now, keeps them in tables
// of the source database, and feeds them back through the lanes when they may be sent.
//
//	lane ── Defer ─▶ writer ── INSERT ─▶ retry ── runs ─▶ feeder ── Offer ─▶ lane
//	  ▲                │                                   │  ▲               │
//	  └── Settled ─────┘                        DELETE ◀───┘  └───── Fed ─────┘
//
// Run has two main goroutines. The writer owns the INSERTs, the feeder everything else that changes
// the tables. (A third goroutine counts rows.) Each method of the Store is one statement under the
// fence, so a former leader changes nothing (I9).
package retry

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay"
)

// Table takes events that cannot be sent now. It implements relay.RetryTable.
type Table struct {
	cfg      Config
	line     Line
	writer   writer
	feeder   feeder
	stats    stats
	repeated repeatedPositions

	once   sync.Once
	fenced chan struct{} // closed when a newer leader has fenced this one
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
	t := &Table{cfg: cfg, fenced: make(chan struct{})}
	t.writer.init(t)
	t.feeder.init(t)
	t.stats.init(&t.cfg)
	t.repeated.pace = retryPace{log: cfg.Log, what: "looking up deferred positions"}
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
	all.Go(func() { t.stats.run(ctx) })
	select {
	case <-ctx.Done():
	case <-t.fenced:
		cancel()
	}
	all.Wait()
	select {
	case <-t.fenced:
		return t.stop()
	default:
		return nil
	}
}

// Defer takes over events whose rows are to be written.
func (t *Table) Defer(events []*relay.Deferred) { t.writer.take(events) }

// Fed takes back rows that were offered.
func (t *Table) Fed(rows []*relay.Fed) { t.feeder.takeBack(rows) }

// StopFeeding ends feeding, for a stop: no row is offered after it has returned. Rows that are with
// the lanes are still taken back, and their results are still committed.
func (t *Table) StopFeeding() { t.feeder.stop() }

// WaitIdle returns nil once nothing is in flight: no row to be written, none with the lanes, no
// result to be committed. Otherwise it returns ctx's error. It is for a stop, after StopFeeding.
func (t *Table) WaitIdle(ctx context.Context) error {
	for t.writer.busy() || t.feeder.outstanding.Load() > 0 {
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
