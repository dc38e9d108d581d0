// The epoch: a new leader raises it, and from then on the statements of former leaders change
// nothing (fencing).

package replication

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

// raiseEpoch fences former leaders: from now on their statements change nothing. A former leader's
// session that holds the row (stopped inside a statement) is ended: by its name and role it is one
// of ours.
func raiseEpoch(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (int64, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	pid := source.BackendPID(conn.Conn().PgConn().CustomData())
	for try := 0; ; try++ {
		var epoch int64
		unblock := time.AfterFunc(time.Second, func() { endBlockers(ctx, pool, c, pid) })
		err := conn.QueryRow(ctx, `UPDATE cdc_relay.slots SET epoch = epoch + 1, leader = $2, changed_at = now()
			WHERE slot = $1 AND state = 'ready' RETURNING epoch`, c.Slot, leaderName()).Scan(&epoch)
		unblock.Stop()
		switch {
		case err == nil:
			return epoch, nil
		case source.IsNoRows(err):
			return 0, errPrepareAgain
		case source.SQLState(err) == "55P03" && try < 3: // lock_timeout
			continue
		}
		return 0, fmt.Errorf("raise epoch: %w", err)
	}
}

// endBlockers ends sessions of this relay's application name and role that block the session pid.
func endBlockers(ctx context.Context, pool *pgxpool.Pool, c *source.Config, pid uint32) {
	tag, err := pool.Exec(ctx, `SELECT pg_terminate_backend(a.pid) FROM unnest(pg_blocking_pids($1)) b(pid)
		JOIN pg_stat_activity a ON a.pid = b.pid WHERE a.application_name = $2 AND a.usename = current_user`,
		int32(pid), c.ApplicationName())
	if err == nil && tag.RowsAffected() > 0 {
		c.Log.Warn("ended sessions of a former leader that blocked the new epoch", zap.Int64("sessions", tag.RowsAffected()))
	}
}

// leaderName is the name of this process in cdc_relay.slots, for people.
func leaderName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}
