// The advisory lock under which a slot is created: one relay at a time does, and a crash releases
// it.

package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
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
	for tries := 0; ; tries++ {
		got, err := tryCreationLock(ctx, conn, c)
		if err != nil {
			return fmt.Errorf("lock the creation of slot %q: %w", c.Slot, err)
		}
		if got {
			break
		}
		if tries%600 == 0 { // each minute: it may be frozen
			if err := nameLocker(ctx, conn, c); err != nil {
				return err
			}
		}
		if !source.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	defer unlockCreation(conn, c)
	defer func() { c.Locker = 0 }()
	return do(ctx)
}

// stillLocked is the condition, in SQL, that the session of Locked still has the lock; true outside
// of it. Each statement that makes or drops a slot, or writes its record, has it: a process that
// was frozen for an hour goes on at any statement, and another one may have done the work since
// (TestThawedCommand). A session that was ended never gets the lock back.
func stillLocked(c *source.Config) string {
	if c.Locker == 0 {
		return "true"
	}
	return fmt.Sprintf(`EXISTS (SELECT FROM pg_locks WHERE %s AND pid = %d)`, lockRow(fmt.Sprint(CreationLock), source.QuoteText(c.Slot)), c.Locker)
}

// lockRow is the condition on the row of pg_locks of a lock that is held.
func lockRow(key, slot string) string {
	return `locktype = 'advisory' AND granted AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint = ` + key + ` AND objid::bigint = hashtext(` + slot + `)::bigint & 4294967295`
}

// lockLost is for a command whose lock was taken away.
func lockLost(c *source.Config) error {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "slot_active",
		What: fmt.Sprintf("the session that had the lock on the creation of slot %q was ended: another relay or command may have changed the slot since, and it is left as it is", c.Slot),
		Fix:  "look at `cdc-relay check`, and run it again if it is still needed",
	}
}

// nameLocker logs who holds the lock.
func nameLocker(ctx context.Context, conn *pgxpool.Conn, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var pid int
	var application, role, since string
	err := conn.QueryRow(ctx, `SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(to_char(now() - a.query_start, 'HH24:MI:SS'), '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE `+lockRow("$1", "$2"),
		CreationLock, c.Slot).Scan(&pid, &application, &role, &since)
	switch {
	case source.IsNoRows(err): // it has just ended
		return nil
	case err != nil:
		return fmt.Errorf("read who locks the creation of slot %q: %w", c.Slot, err)
	}
	c.Log.Info("waiting for another relay, or a command (accept, recover, takeover), that works on the slot", zap.String("slot", c.Slot),
		zap.Int("pid", pid), zap.String("application", application), zap.String("role", role), zap.String("silent_for", since),
		zap.String("fix", fmt.Sprintf("let it end; if its process is frozen or nobody's: SELECT pg_terminate_backend(%d)", pid)))
	return nil
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
	var pid int32 // a pooler has one of its own
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, hashtext($2)), pg_backend_pid()`, CreationLock, c.Slot).Scan(&got, &pid)
	if got {
		c.Locker = pid
	}
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
