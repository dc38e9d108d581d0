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
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
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
	cfg.RoundBytes, cfg.BudgetBytes = cmp.Or(cfg.RoundBytes, roundBytes), cmp.Or(cfg.BudgetBytes, budgetBytes)
	cfg.Log = cmp.Or(cfg.Log, zap.NewNop())
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
func (t *Table) Defer(events []*inflight.Event) { t.writer.take(events) }

// Read takes a lane's wants.
func (t *Table) Read(lane int, wants []order.Want, walks []uint64) {
	t.feeder.ask(func(a *asked) {
		for _, w := range wants {
			a.wants = append(a.wants, want{w, lane})
		}
		a.walks = append(a.walks, walks...)
	})
}

// Resent tells that a resend has copied rows, which no lane knows: they are looked for.
func (t *Table) Resent() { t.feeder.ask(func(a *asked) { a.resent = true }) }

// Finish takes the results of rows that were with a lane.
func (t *Table) Finish(results []order.Result) {
	t.feeder.ask(func(a *asked) { a.results = append(a.results, results...) })
}

// StopFeeding ends feeding, for a stop: no row is offered after it has returned. Rows that are with
// the lanes are still taken back, and their results are still committed.
func (t *Table) StopFeeding() { t.feeder.stop() }

// WaitIdle returns nil once nothing is in flight: no row to be written, none with the lanes, no
// result to be committed. Otherwise it returns ctx's error. It is for a stop, after StopFeeding.
func (t *Table) WaitIdle(ctx context.Context) error {
	for t.writer.busy() || t.feeder.inFlight.Load() > 0 || t.feeder.requests.Load() > 0 {
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
