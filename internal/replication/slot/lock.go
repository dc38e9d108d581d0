// The advisory lock under which a slot is created: one relay at a time does, and a crash releases
// it.

package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

// LockCreation waits for the advisory lock under which this slot is created, with one log line when
// it must wait.
func LockCreation(ctx context.Context, conn *pgxpool.Conn, c *source.Config) error {
	said := false
	for {
		got, err := tryCreationLock(ctx, conn, c)
		if err != nil {
			return fmt.Errorf("lock the creation of slot %q: %w", c.Slot, err)
		}
		if got {
			return nil
		}
		if !said {
			c.Log.Info("waiting for another relay that prepares the slot", zap.String("slot", c.Slot))
			said = true
		}
		if !source.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func tryCreationLock(ctx context.Context, conn *pgxpool.Conn, c *source.Config) (got bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, hashtext($2))`, CreationLock, c.Slot).Scan(&got)
	return got, err
}

// CreationLock is the first key of the advisory lock on a slot's creation; the second is the hash
// of its name.
const CreationLock = 0x63646372

// UnlockCreation releases the lock of LockCreation, and closes conn if that fails or takes 2 s.
func UnlockCreation(conn *pgxpool.Conn, c *source.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, hashtext($2))`, CreationLock, c.Slot); err != nil {
		// A session that keeps the lock would keep every other relay out: end it.
		c.Log.Debug("unlock failed, closing the session", zap.Error(err))
		_ = conn.Conn().Close(ctx)
	}
}
