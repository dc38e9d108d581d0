// The preflight check of PostgreSQL, broker and configuration.

package wiring

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// CheckTimeout bounds a whole check.
const CheckTimeout = 30 * time.Second

// Check checks PostgreSQL, the broker and the configuration. It publishes nothing.
// PostgreSQL and the broker are checked at the same time: a silent one uses up all the time.
func Check(ctx context.Context, c *config.Config, rc source.Config, log *zap.Logger) ([]check.Finding, error) {
	rc.Log = zap.NewNop()
	var broker []check.Finding
	var brokerErr error
	var asked sync.WaitGroup
	asked.Go(func() { broker, brokerErr = checkBroker(ctx, c, log) })
	findings, err := check.Run(ctx, rc)
	kept := checkRetention(ctx, c, rc)
	asked.Wait()
	if err := cmp.Or(err, brokerErr); err != nil {
		return nil, err
	}
	return slices.Concat(findings, kept, checkOrdering(c), broker, checkAdmin(&c.Admin, time.Now()), checkAdminListen(&c.Admin)), nil
}
