// A standby that reaches its broker says so, for a leader that does not.
//
// It is a shared advisory lock of the database: it writes nothing, needs no right, has room for a
// slot's whole name (an application_name has not), and ends with its session. A version that does
// not know it neither takes it nor asks for it.

package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// offerLock is the first key of the lock; the second is the hash of the slot's name.
const offerLock = CreationLock + 1

// Offer says that this relay could lead, for as long as the session of the pool lives that it was
// said in: half a minute.
func Offer(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	if _, err := pool.Exec(ctx, `SELECT pg_try_advisory_lock_shared($1, hashtext($2))`, offerLock, c.Slot); err != nil {
		return fmt.Errorf("offer to read slot %q: %w", c.Slot, err)
	}
	return nil
}

// OfferLasts is how long an offer counts after the last word of its session.
const OfferLasts = 30 * time.Second

// Offered reports whether a relay has said that it could lead. Any login may take such a lock, so
// only sessions of the relay's own role count. A session of a host that has vanished lives on for
// hours, so only those count that have done something within the time lasts: a standby asks all the
// time.
func Offered(ctx context.Context, pool *pgxpool.Pool, c *source.Config, lasts time.Duration) (offered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = $1 AND l.objid = hashtext($2)::oid
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND a.usename = current_user AND a.state_change > now() - $3::float8 * interval '1 s')`,
		offerLock, c.Slot, lasts.Seconds()).Scan(&offered)
	if err != nil {
		return false, fmt.Errorf("ask for a standby of slot %q: %w", c.Slot, err)
	}
	return offered, nil
}
