package devenv

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// WaitOutgrown waits until the server can tell that its publications are older than what waits in a slot that somebody reads and
// confirms: the slot's catalog_xmin has passed them. A slot in use comes there by itself within a minute; here checkpoints hurry it.
func WaitOutgrown(ctx context.Context, dbURL, slot string) error {
	return onConn(ctx, dbURL, func(conn *pgx.Conn) error {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for passed := false; ; {
			if _, err := conn.Exec(ctx, `CHECKPOINT`); err != nil { // writes which transactions run, from which a slot learns
				return fmt.Errorf("checkpoint: %w", err)
			}
			err := conn.QueryRow(ctx, `SELECT age(s.catalog_xmin) < least((SELECT min(age(xmin)) FROM pg_publication), (SELECT min(age(xmin)) FROM pg_publication_rel))
				FROM pg_replication_slots s WHERE slot_name = $1`, slot).Scan(&passed)
			if err != nil {
				return fmt.Errorf("read the age of slot %s: %w", slot, err)
			}
			if passed {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("slot %s has not left its publication behind: %w", slot, ctx.Err())
			}
		}
	})
}
