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
	for tries, named := 0, 0; ; tries++ {
		got, err := tryCreationLock(ctx, conn, c)
		if err != nil {
			return fmt.Errorf("lock the creation of slot %q: %w", c.Slot, err)
		}
		if got {
			break
		}
		if tries%100 == 0 {
			if named, err = nameLocker(ctx, conn, c, named); err != nil {
				return err
			}
		}
		if !source.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	defer unlockCreation(conn, c)
	return do(ctx)
}

// nameLocker logs who holds the lock, once for each session, and returns its pid.
func nameLocker(ctx context.Context, conn *pgxpool.Conn, c *source.Config, named int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var pid int
	var application, role, since string
	err := conn.QueryRow(ctx, `SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(to_char(now() - a.query_start, 'HH24:MI:SS'), '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid::bigint = $1 AND objid::bigint = hashtext($2)::bigint & 4294967295 AND objsubid = 2 AND granted`,
		CreationLock, c.Slot).Scan(&pid, &application, &role, &since)
	switch {
	case source.IsNoRows(err) || pid == named: // it has just ended
		return named, nil
	case err != nil:
		return 0, fmt.Errorf("read who locks the creation of slot %q: %w", c.Slot, err)
	}
	c.Log.Info("waiting for another relay, or a command (accept, recover, takeover), that works on the slot", zap.String("slot", c.Slot),
		zap.Int("pid", pid), zap.String("application", application), zap.String("role", role), zap.String("silent_for", since),
		zap.String("fix", fmt.Sprintf("let it end; if its process is frozen or nobody's: SELECT pg_terminate_backend(%d)", pid)))
	return pid, nil
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
