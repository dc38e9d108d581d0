// What a leading relay runs during one term: the delivery line, the retry table, and the tasks for
// operators.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retention"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// term is what the leader runs in one term.
type term struct {
	*relay.Line
	lead       func(on bool) // calls Lead of the sink; nil for a sink without it
	retryTable *retry.Table
	operators  *operators
	guard      *guard.Guard         // nil when no disk guard is configured
	retention  *retention.Retention // nil when the outbox tables are left alone
	stopping   atomic.Bool
}

var _ source.Line = (*term)(nil)

// newTerm makes the line of a term. It counts into the line the deferred rows and the dead letters
// that block their group.
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

// retryTableConfig makes the configuration of the retry table for one term.
func retryTableConfig(c *config.Config, v *process, columns []string, t source.Term, log *zap.Logger) retry.Config {
	scope := wiring.Ordering(c).Scope()
	return retry.Config{
		Slot: c.Source.Slot, Epoch: t.Epoch, Incarnation: t.Incarnation, Scope: scope,
		Store: postgres.New(t.Pool, source.BackendPID, store.Config{
			Slot: c.Source.Slot, SystemID: t.SystemID, Incarnation: t.Incarnation, Epoch: t.Epoch,
			Columns: columns, Scope: scope, Block: blocksOnDeadLetter(c), Places: placesOf(c, v.sink, log), Keys: t.Keys,
		}),
		ReadRow: func(ctx context.Context, ev *event.Event) (*event.Event, string, error) {
			return repair.ReadRow(ctx, t.Pool, v.source, ev)
		},
		Sink: v.sink, Block: blocksOnDeadLetter(c), DestinationMaxAge: c.Retry.DestinationMaxAge, Log: log,
		Stats: func(ctx context.Context, limit int, paused []sink.Place) (store.Stats, error) {
			return postgres.CountWithWaiting(ctx, t.Pool, c.Source.Slot, t.SystemID, limit, paused)
		},
		Hooks: v.tracedRetryTable(retry.Hooks{
			Deferred: v.metrics.Deferred, Dead: v.metrics.Dead, Exhausted: v.metrics.Exhausted, Retried: v.metrics.Retried, Failed: v.metrics.Failed, Erased: v.erased,
			Writer: v.watchdog.writer.Work, Feeder: v.watchdog.feeder.Work, Stats: v.watchdog.stats.Work,
		}),
		Traceparent: traceparentsOf(v.tracer),
	}
}

// newRetention makes the task that deletes delivered rows and keeps the sent set small. It returns
// nil when no table is configured for it. Only the first term of a process checks that the tables
// have the columns that it needs: later, a table without them must not end a relay that delivers.
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

// Run runs the parts of the term until ctx is done. An error of one part, such as a newer leader,
// ends the others.
func (l *term) Run(ctx context.Context) error {
	if l.lead != nil {
		l.lead(true)
		defer l.lead(false)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.Line.Run(ctx) })
	group.Go(func() error { return l.retryTable.Run(ctx) })
	group.Go(func() error { return l.operators.runMirror(ctx) })
	later(ctx, group, 1, l.operators.resender.Run)
	later(ctx, group, 2, l.operators.leader.Run)
	if l.guard != nil {
		group.Go(func() error { return l.guard.Run(ctx) })
	}
	if l.retention != nil {
		later(ctx, group, 3, l.retention.Run)
	}
	return group.Wait()
}

// later runs something some moments after the term has begun. It is for tasks that no event waits
// for: they then find a free session in the pool. If all tasks began at once, each would have to
// make a session of its own, with its own copy of the catalogs.
func later(ctx context.Context, group *errgroup.Group, moments int, run func(context.Context) error) {
	group.Go(func() error {
		if !source.Sleep(ctx, time.Duration(moments)*100*time.Millisecond) {
			return nil
		}
		return run(ctx)
	})
}

// Stopping ends what could take forever: feeding deferred rows, and events in memory that wait
// until the rows of their group are gone.
func (l *term) Stopping() {
	l.stopping.Store(true)
	l.operators.stop()
	l.retryTable.StopFeeding()
	l.Line.Stopping()
}

// WaitSettled waits until the line has settled. Once the term is stopping, it also waits until the
// rows in the line's lanes have ended, so that a clean stop repeats nothing.
func (l *term) WaitSettled(ctx context.Context) error {
	if err := l.Line.WaitSettled(ctx); err != nil || !l.stopping.Load() {
		return err
	}
	l.operators.wait(ctx)
	return l.retryTable.WaitIdle(ctx)
}

// newGuard makes the disk guard of a term. The guard waits longer than confirm_timeout before it
// acts, because a sink that gets no answer needs that long to blame a destination.
func newGuard(c *config.Config, v *process, t source.Term, line *relay.Line, log *zap.Logger) *guard.Guard {
	return guard.New(guard.Config{
		MaxBytes: c.Guard.MaxBytes, Patience: c.Delivery.ConfirmTimeout + 10*time.Second,
		Line: line, Up: func() bool { return v.sink.Status().Up }, Log: log,
		Measure: func(ctx context.Context) (guard.Disk, error) {
			d, err := slot.ReadDisk(ctx, t.Pool, c.Source.Slot, c.Guard.Limits())
			return guard.Disk(d), err
		},
		Count: func(ctx context.Context) (int64, error) { return slot.ReadRows(ctx, t.Pool, c.Guard.Limits()) },
	})
}

// placesOf tells the retry table how the configured sink places events.
func placesOf(c *config.Config, out sink.Sink, log *zap.Logger) *store.Places {
	var templates, flags []string
	for _, t := range c.Sink.Settings.Templates() {
		templates = append(templates, fmt.Sprintf("%s %q", t.Key, t.Template))
	}
	for _, part := range c.Sink.Driver.Route {
		flags = append(flags, "--"+part.Flag())
	}
	return &store.Places{
		Sink: c.Sink.Driver.Name, Templates: strings.Join(templates, ", "), Keyed: len(c.Sink.Driver.Route) > 1,
		Route: func(ev *event.Event) event.Route { return out.Route(ev) },
		Switched: func(s store.Switch) {
			if s.Placed > 0 {
				log.Warn("deferred events and dead letters had no place at this kind of broker: they go where the templates say now",
					zap.Int("events", s.Placed), zap.String("from", s.From), zap.String("to", c.Sink.Driver.Name))
			}
			if s.Cancelled > 0 {
				log.Warn("jobs that named a place at the other broker are cancelled: request them again",
					zap.Int("jobs", s.Cancelled), zap.String("from", s.From), zap.String("to", c.Sink.Driver.Name))
			}
			if s.Kept > 0 {
				log.Warn("the templates have changed: deferred events and dead letters keep the place that they had",
					zap.Int("events", s.Kept), zap.String("fix", "to send one elsewhere: cdc-relay deferred dead-letter NUMBER, cdc-relay dead-letters replay NUMBER "+strings.Join(flags, " ")))
			}
		},
	}
}

// operators are the leader's tasks other than relaying and retries: bulk jobs, resends, the purge
// by age and the mirror of dead letters.
type operators struct {
	leader   *dlq.Leader
	resender *repair.Resender
	mirror   *dlq.Mirror // nil: none is configured
	copies   *relay.Copies
	done     chan struct{} // of the mirror
}

func newOperators(c *config.Config, v *process, columns []string, t source.Term, rows store.Store, retries *retry.Table, log *zap.Logger) *operators {
	o := &operators{done: make(chan struct{}), copies: &relay.Copies{}}
	o.resender = repair.NewResender(repair.ResenderConfig{
		Source: v.source, Pool: t.Pool, SystemID: t.SystemID, Epoch: t.Epoch, Incarnation: t.Incarnation, Sink: v.sink, Scope: wiring.Ordering(c).Scope(),
		Settled: func() pglogrepl.LSN { return o.copies.Line.Watermark().LSN }, Sent: t.Sent, Copied: retries.Resent, Log: log,
	})
	term := dlq.Term{DB: t.Pool, Slot: c.Source.Slot, SystemID: t.SystemID, Epoch: t.Epoch}
	o.leader = dlq.NewLeader(dlq.LeaderConfig{
		Term: term, Resend: o.resender.Wake, Keep: c.DeadLetters.Keep, Log: log,
		Expire: func(ctx context.Context) (int, error) {
			return rows.ExpireDeadLetters(ctx, c.DeadLetters.Keep, expireRows)
		},
	})
	if c.DeadLetters.Mirror.IsSet() {
		o.mirror = dlq.NewMirror(dlq.MirrorConfig{
			Store: &term,
			Route: c.MirrorRoute(), Columns: len(columns),
			Publish: o.copies.Publish, Mirrored: v.metrics.Mirrored, Failed: v.metrics.MirrorFailed, Log: log,
		})
	}
	return o
}

// expireRows is how many rows a purge by age changes at once.
const expireRows = 1000

// stop makes the mirror publish nothing new; wait gives copies in flight a moment to be recorded.
func (o *operators) stop() {
	if o.mirror != nil {
		o.mirror.Stop()
	}
}

func (o *operators) wait(ctx context.Context) {
	if o.mirror == nil {
		return
	}
	select {
	case <-o.done:
	case <-time.After(mirrorTimeout):
	case <-ctx.Done():
	}
}

// mirrorTimeout bounds how long a stop waits for the mirror. A copy that is not recorded by then is
// mirrored once more.
const mirrorTimeout = 2 * time.Second

func (o *operators) runMirror(ctx context.Context) error {
	defer close(o.done)
	if o.mirror == nil {
		return nil
	}
	return o.mirror.Run(ctx)
}
