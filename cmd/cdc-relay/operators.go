// The leader's tasks for operators: bulk jobs, the purge by age, the dead-letter mirror.

package main

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication/recovery"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// operators are the leader's tasks other than relaying and retries: bulk jobs, resends, the purge
// by age and the mirror of dead letters.
type operators struct {
	leader   *dlq.Leader
	resender *recovery.Resender
	mirror   *dlq.Mirror // nil: none is configured
	copies   *relay.Copies
	done     chan struct{} // of the mirror
}

func newOperators(c *config.Config, v *process, columns []string, t source.Term, rows store.Store, retries *retry.Table, log *zap.Logger) *operators {
	o := &operators{done: make(chan struct{}), copies: &relay.Copies{}}
	o.resender = recovery.NewResender(recovery.ResenderConfig{
		Source: v.source, Pool: t.Pool, SystemID: t.SystemID, Epoch: t.Epoch, Incarnation: t.Incarnation, Sink: v.sink, Scope: wiring.Ordering(c).Scope(),
		Settled: func() pglogrepl.LSN { return o.copies.Line.Watermark().LSN }, Sent: t.Sent, Copied: retries.Resent, Log: log,
	})
	o.leader = dlq.NewLeader(dlq.LeaderConfig{
		DB: t.Pool, Slot: c.Source.Slot, SystemID: t.SystemID, Epoch: t.Epoch, Resend: o.resender.Wake, Keep: c.DeadLetters.Keep, Log: log,
		Expire: func(ctx context.Context) (int, error) { return rows.Expire(ctx, c.DeadLetters.Keep, expireRows) },
	})
	if c.DeadLetters.Mirror.IsSet() {
		o.mirror = dlq.NewMirror(dlq.MirrorConfig{
			Store: &dlq.MirrorPostgres{DB: t.Pool, Slot: c.Source.Slot, SystemID: t.SystemID, Epoch: t.Epoch},
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
