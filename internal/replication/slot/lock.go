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

// Locked calls do while it holds the advisory lock on the slot's creation, in a session of the
// pool. It logs one line when it must wait.
func Locked(ctx context.Context, pool *pgxpool.Pool, c *source.Config, do func(context.Context) error) error {
	conn, err := acquireConn(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	for waited := false; ; waited = true {
		got, err := tryCreationLock(ctx, conn, c)
		if err != nil {
			return fmt.Errorf("lock the creation of slot %q: %w", c.Slot, err)
		}
		if got {
			break
		}
		if !waited {
			c.Log.Info("waiting for another relay, or a command (accept, recover, takeover), that works on the slot", zap.String("slot", c.Slot))
		}
		if !source.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	defer unlockCreation(conn, c)
	return do(ctx)
}

// acquireConn waits for a connection for source.AnswerTimeout at most.
func acquireConn(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	return pool.Acquire(ctx)
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

// unlockCreation releases the lock, and closes conn if that fails or takes 2 s: a session that
// keeps the lock would keep every other relay out.
func unlockCreation(conn *pgxpool.Conn, c *source.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, hashtext($2))`, CreationLock, c.Slot); err != nil {
		c.Log.Debug("unlock failed, closing the session", zap.Error(err))
		_ = conn.Conn().Close(ctx)
	}
}
