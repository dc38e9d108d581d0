// Reclaim truncates the retry table once it is empty.

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// reclaimFrom is the size, with indexes, from which on an empty table is worth an exclusive lock.
// The deferred events of a short pause stay below it, and their space is used again.
const reclaimFrom = 64 << 20

// worthSQL reads whether the table is worth an exclusive lock. It also passes the entries of
// deleted rows that are not vacuumed yet, which must not be done under the lock.
const worthSQL = readFence + ` SELECT $3::text <> '' AND pg_total_relation_size('cdc_relay.retry') >= $4 AND NOT EXISTS (SELECT FROM cdc_relay.retry) FROM fence`

// reclaimSQL is one message with one transaction, which the server carries out without us: were it
// several, a relay that stops between two of them would keep the lock. SLOT and EPOCH are replaced;
// a message of several statements has no parameters.
//
// Why it loses no row. A row that is written has its writer's lock on the table until the commit,
// and NOWAIT fails while there is one. Under our own lock nobody writes. With READ COMMITTED each
// statement has a snapshot of its own, so EXISTS, which comes after the lock, sees every row that
// was committed before the lock was given. It has no condition: the table belongs to all slots of
// the database, and to copies of other systems. The lock on the slot keeps the next leader from
// raising the epoch in between (I9).
//
// Why it harms nobody (I10). It waits for the slot's row and for the TOAST table, which autovacuum
// locks on its own, at most lock_timeout, and runs at most statement_timeout. The commit does not
// wait for a synchronous standby, which could be away for hours while we have the lock; a standby
// that is promoted without it has the same empty table. A session that took its snapshot while
// there were rows, and has not touched the table yet, sees it empty: TRUNCATE is not MVCC-safe. No
// relay reads with an old snapshot, and pg_dump locks its tables when it begins.
const reclaimSQL = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '1s'; SET LOCAL synchronous_commit = local;
DO $reclaim$ BEGIN
	PERFORM FROM cdc_relay.slots WHERE slot = 'SLOT' AND epoch = EPOCH FOR SHARE;
	IF NOT FOUND THEN
		PERFORM set_config('cdc_relay.reclaim', 'fenced', true);
		RETURN;
	END IF;
	LOCK TABLE cdc_relay.retry IN ACCESS EXCLUSIVE MODE NOWAIT;
	IF EXISTS (SELECT FROM cdc_relay.retry) THEN
		PERFORM set_config('cdc_relay.reclaim', 'not empty', true);
		RETURN;
	END IF;
	TRUNCATE cdc_relay.retry;
	PERFORM set_config('cdc_relay.reclaim', 'truncated', true);
END $reclaim$;
SELECT current_setting('cdc_relay.reclaim')`

// Reclaim implements Store. A call without an answer may still be carried out: that is as safe as
// at any other time, so nothing has to wait for it.
func (p *Store) Reclaim(ctx context.Context) (store.Reclaimed, error) {
	worth := false
	err := p.read(ctx, "read the size of the retry table", worthSQL, []any{p.c.SystemID, p.limits.reclaimFrom}, func(rows pgx.Rows) error { return rows.Scan(&worth) })
	if err != nil || !worth {
		return store.Kept, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.patience(0))
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("reclaim space: %w", err)
	}
	defer conn.Release()
	return p.truncate(ctx, conn)
}

func (p *Store) truncate(ctx context.Context, conn *pgxpool.Conn) (store.Reclaimed, error) {
	pg := conn.Conn().PgConn()
	slot, err := pg.EscapeString(p.c.Slot)
	if err != nil {
		return "", fmt.Errorf("reclaim space: %w", err)
	}
	results, err := pg.Exec(ctx, strings.NewReplacer("SLOT", slot, "EPOCH", strconv.FormatInt(p.c.Epoch, 10)).Replace(reclaimSQL)).ReadAll()
	var no *pgconn.PgError
	if errors.As(err, &no) {
		switch no.Code {
		case "55P03", "57014", "40P01": // no lock, no time, a deadlock
			return store.InUse, nil
		case "42501":
			return store.Kept, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("reclaim space: %w", redacted{err})
	}
	switch string(results[len(results)-1].Rows[0][0]) {
	case "fenced":
		return "", store.ErrFenced
	case "truncated":
		return store.Truncated, nil
	}
	return store.Kept, nil
}
