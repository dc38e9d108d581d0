// Processed messages are forgotten after Config.Keep.

package inbox

import (
	"context"
	"fmt"
	"time"
)

const (
	pruneBatch = 1000
	pruneEvery = 10 * time.Minute
)

// Prune deletes the records of this service that are older than Config.Keep, and returns how many.
// It deletes in small transactions, waits for no lock of a row, and may run in several processes at
// once. A consumer that runs does it every ten minutes.
func (in *Inbox) Prune(ctx context.Context) (int64, error) {
	for all := int64(0); ; {
		tag, err := in.cfg.Pool.Exec(ctx, in.sql.Load().prune, in.cfg.Service, in.cfg.Keep.Seconds(), pruneBatch)
		if err != nil {
			return all, fmt.Errorf("delete old rows of %s: %w", in.cfg.Table, err)
		}
		all += tag.RowsAffected()
		if tag.RowsAffected() < pruneBatch {
			return all, nil
		}
	}
}

// prune prunes until ctx ends.
func (in *Inbox) prune(ctx context.Context) {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		if n, err := in.Prune(ctx); err != nil && ctx.Err() == nil {
			in.cfg.Log.Warn("prune processed messages", "error", err)
		} else if n > 0 {
			in.cfg.Log.Info("processed messages pruned", "rows", n)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
