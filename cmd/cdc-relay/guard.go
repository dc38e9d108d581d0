// The disk guard of a term.

package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// newGuard makes the disk guard of a term. A sink needs its confirm_timeout to blame a destination,
// and a moment more.
func newGuard(c *config.Config, v *process, t source.Term, line *relay.Line, log *zap.Logger) *guard.Guard {
	return guard.New(guard.Config{
		MaxBytes: c.Guard.MaxBytes, Patience: c.Delivery.ConfirmTimeout + 10*time.Second,
		Line: line, Up: func() bool { return v.sink.Status().Up }, Log: log,
		Measure: func(ctx context.Context) (guard.Disk, error) {
			d, err := survey.ReadDisk(ctx, t.Pool, c.Source.Slot, c.Guard.Limits())
			return guard.Disk(d), err
		},
		Count: func(ctx context.Context) (int64, error) { return survey.ReadRows(ctx, t.Pool, c.Guard.Limits()) },
	})
}
