// What a leader runs during one term: the line, the retry table, operators' tasks.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
	"github.com/cdc-relay/cdc-relay/internal/retention"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// term is what a leader runs in one term: the line of lanes, the retries, and operators' tasks.
type term struct {
	*relay.Line
	lead       func(on bool) // the sink's; nil: it does not care
	retryTable *retry.Table
	operators  *operators
	guard      *guard.Guard         // nil: there is none
	retention  *retention.Retention // nil: the outbox tables are left alone
	stopping   atomic.Bool
}

var _ source.Line = (*term)(nil)

// newTerm creates the line of a term and counts into it the deferred rows and the dead letters that
// block their group.
func newTerm(ctx context.Context, c *config.Config, v *process, columns []string, t source.Term, log *zap.Logger) (*term, error) {
	cfg := retryTableConfig(c, v, columns, t, log)
	retries := retry.New(cfg)
	work := newOperators(c, v, columns, t, cfg.Store, retries, log)
	l := &term{retryTable: retries, operators: work, Line: relay.New(relay.Config{
		Ordering: wiring.Ordering(c), MaxInFlight: c.Delivery.MaxInFlight, MaxInFlightBytes: c.Delivery.MaxInFlightBytes,
		Start: t.Start, Sink: v.sink, RetryTable: retries, Sent: t.Sent, Block: blocksOnDeadLetter(c), Log: log,
		MaxAttempts: c.Retry.MaxAttempts, Backoff: c.Retry.Backoff, MaxBackoff: c.Retry.MaxBackoff, DestinationMaxAge: c.Retry.DestinationMaxAge,
		OfDest: c.Sink.Driver.AppendsCalls, Guard: c.Guard.IsSet(),
		Hooks: v.traced(relay.Hooks{Confirmed: v.metrics.Confirmed, Rejected: v.metrics.Rejected, Failed: v.metrics.Failed, Unavailable: v.metrics.Unavailable}),
	})}
	if s, ok := v.sink.(sink.Leader); ok {
		l.lead = s.Lead
	}
	work.copies.Line = l.Line
	var err error
	if l.retention, err = newRetention(ctx, c, v, t, l.Line, log); err != nil {
		return nil, err
	}
	if c.Guard.IsSet() {
		l.guard = newGuard(c, v, t, l.Line, log)
	}
	if err := retries.Load(ctx, l.Line); errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("count deferred rows: PostgreSQL or the broker does not answer: %w", err)
	} else if err != nil {
		return nil, err
	}
	return l, nil
}

// retryTableConfig configures the retry table for one term.
func retryTableConfig(c *config.Config, v *process, columns []string, t source.Term, log *zap.Logger) retry.Config {
	scope := wiring.Ordering(c).Scope()
	return retry.Config{
		Slot: c.Source.Slot, Epoch: t.Epoch, Incarnation: t.Incarnation, Scope: scope,
		Store: postgres.New(t.Pool, source.BackendPID, store.Config{
			Slot: c.Source.Slot, SystemID: t.SystemID, Incarnation: t.Incarnation, Epoch: t.Epoch,
			Columns: columns, Scope: scope, Block: blocksOnDeadLetter(c), Places: placesOf(c, v.sink, log), Keys: t.Keys,
		}),
		ReadRow: func(ctx context.Context, ev *event.Event) (*event.Event, string, error) {
			return tablerows.ReadRow(ctx, t.Pool, v.source, ev)
		},
		Sink: v.sink, Block: blocksOnDeadLetter(c), DestinationMaxAge: c.Retry.DestinationMaxAge, Log: log,
		Stats: func(ctx context.Context, limit int) (store.Stats, error) {
			return postgres.Count(ctx, t.Pool, c.Source.Slot, t.SystemID, limit)
		},
		Hooks: v.tracedRetryTable(retry.Hooks{
			Deferred: v.metrics.Deferred, Dead: v.metrics.Dead, Exhausted: v.metrics.Exhausted, Retried: v.metrics.Retried, Failed: v.metrics.Failed,
			Writer: v.watchdog.writer.Work, Feeder: v.watchdog.feeder.Work, Stats: v.watchdog.stats.Work,
		}),
		Traceparent: traceparentsOf(v.tracer),
	}
}

// newRetention makes what deletes delivered rows and keeps the sent set small; nil: there is none.
// Whether the tables have what retention goes by is asked once in a process: later that must not
// end a relay that delivers.
func newRetention(ctx context.Context, c *config.Config, v *process, t source.Term, line *relay.Line, log *zap.Logger) (*retention.Retention, error) {
	tables := wiring.Retained(c)
	if len(tables) == 0 {
		return nil, nil
	}
	if v.line.Load() == nil {
		if err := wiring.CheckRetained(ctx, c, t.Pool, log); err != nil {
			return nil, err
		}
	}
	return retention.New(retention.Config{
		Pool: t.Pool, Slot: c.Source.Slot, Epoch: t.Epoch, Tables: tables, Delete: c.Retention.IsSet(), Keep: c.Retention.Keep,
		Settled: func() pglogrepl.LSN { return line.Watermark().LSN }, Deleted: v.metrics.RowsDeleted, Log: log,
	}), nil
}

func blocksOnDeadLetter(c *config.Config) bool {
	return c.DeadLetters.OnDeadLetter == config.DeadLetterBlock
}

// Run runs all of them until ctx is done. An error of one, such as a newer leader, ends the others.
func (l *term) Run(ctx context.Context) error {
	if l.lead != nil {
		l.lead(true)
		defer l.lead(false)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.Line.Run(ctx) })
	group.Go(func() error { return l.retryTable.Run(ctx) })
	group.Go(func() error { return l.operators.leader.Run(ctx) })
	group.Go(func() error { return l.operators.runMirror(ctx) })
	group.Go(func() error { return l.operators.resender.Run(ctx) })
	if l.guard != nil {
		group.Go(func() error { return l.guard.Run(ctx) })
	}
	if l.retention != nil {
		group.Go(func() error { return l.retention.Run(ctx) })
	}
	return group.Wait()
}

// Stopping ends what could take forever: feeding rows, and events that wait in memory until their
// group's rows are gone.
func (l *term) Stopping() {
	l.stopping.Store(true)
	l.operators.stop()
	l.retryTable.StopFeeding()
	l.Line.Stopping()
}

// WaitSettled waits until the line has settled and, once it is stopping, until the rows in its
// lanes have ended too: a clean stop repeats nothing.
func (l *term) WaitSettled(ctx context.Context) error {
	if err := l.Line.WaitSettled(ctx); err != nil || !l.stopping.Load() {
		return err
	}
	l.operators.wait(ctx)
	return l.retryTable.WaitIdle(ctx)
}
