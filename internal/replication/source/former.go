// The sessions of former leaders, which a new leader ends: a frozen one keeps its sessions, with
// whatever they read, lock or wait for, and is fenced only in the relay's own tables.
//
// Which sessions these are must be certain: relays that stand by, operators' commands and the new
// leader itself have the same application_name, role and database. So each session that a leader's
// pool makes takes a shared advisory lock that names its slot and its epoch. The lock writes
// nothing, needs no right, keeps nobody waiting, and ends with its session. A session from before
// the term takes it when it is used next, and those of the term are replaced when it ends. What
// another session has is not touched, whatever it does and whenever it began. A version that does
// not know the lock is fenced as ever, and its transactions end by their own timeout.

package source

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

// leaderLock is the first key of the lock, in SQL; the second is the epoch.
const leaderLock = `hashtext('cdc-relay leader ' || %s)`

// Lead has the pool mark its sessions as those of a leader with this epoch; 0: of none.
func (p *Primary) Lead(epoch int64) {
	if p == nil {
		return
	}
	if was := p.epoch.Swap(epoch); was != 0 && was != epoch && p.Changed != nil {
		p.Changed()
	}
}

const epochKey = "cdc-relay epoch" // an int64 of CustomData: what a session is marked with

// mark makes a session of the pool that of a leader, if this process leads. usable: it is not one
// of another term.
func (c *Config) mark(ctx context.Context, conn *pgconn.PgConn) (usable bool, err error) {
	if c.Primary == nil {
		return true, nil
	}
	epoch := c.Primary.epoch.Load()
	marked, _ := conn.CustomData()[epochKey].(int64)
	if marked != 0 || epoch == 0 {
		return marked == epoch, nil
	}
	if _, err := QueryText(ctx, conn, fmt.Sprintf("SELECT pg_try_advisory_lock_shared("+leaderLock+", %d)", QuoteText(c.Slot), int32(epoch))); err != nil {
		return false, fmt.Errorf("mark the session of a leader: %w", err)
	}
	conn.CustomData()[epochKey] = epoch
	return true, nil
}

// EndFormer ends the sessions of leaders of the slot with another epoch than this one, and waits
// until they are gone; for a session that does not end, as one whose backend is frozen, not for
// long: it is fenced.
func EndFormer(ctx context.Context, pool *pgxpool.Pool, c *Config, epoch int64) error {
	began := time.Now()
	for found := 0; ; {
		var left int
		err := pool.QueryRow(ctx, `SELECT count(pg_terminate_backend(a.pid)) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = `+fmt.Sprintf(leaderLock, "$1::text")+`::oid AND l.objid <> $2::int::oid
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND a.usename = current_user AND a.application_name = $3`, c.Slot, int32(epoch), c.ApplicationName()).Scan(&left)
		if err != nil {
			return fmt.Errorf("end sessions of former leaders: %w", err)
		}
		found = max(found, left)
		if left > 0 && time.Since(began) < endPatience && Sleep(ctx, endPoll) {
			continue
		}
		if found > 0 {
			c.Log.Info("ended sessions of former leaders", zap.String("slot", c.Slot), zap.Int("sessions", found), zap.Int("left", left))
		}
		return nil
	}
}

const (
	endPatience = 5 * time.Second
	endPoll     = 20 * time.Millisecond
)
