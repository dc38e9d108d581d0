// ReadRows, GroupsOfDestination, GroupsOfResends and NextDestination find and read the rows to
// feed. Count counts them, ReclaimSpace gives back the space of none.

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// readSQL first chooses the rows of each want, by positions and sizes alone, and then reads them.
// The limit on size takes rows in the order of their index in the run (i). So no run has a gap, and
// every first row comes before any second row. A large row is the only one of its run, and comes
// without the columns that are only sent: readLarge reads it. Each want has a row in first, of
// NULLs when the table has nothing: so each is answered, and a former leader gets no answer at all.
//
// Two things keep the planner from reading whole tables: the limit is a parameter (and one more,
// for More), whose value it sees; and OFFSET 0 has each row looked up by its
// number, where a merge join would begin at the lowest number.
//
// The comparison of positions is a condition of the index retry_group: a scan begins behind After.
// From the beginning of the ordering group it would pass the entries of all rows that were deleted
// since the oldest snapshot of any session, with every page of a drain.
func (p *Store) readSQL() string {
	return readFence + `, c AS MATERIALIZED (SELECT c.o, c.ordering_group, c.incarnation, c.commit_lsn::pg_lsn AS commit_lsn, c.idx, ` + p.blockedSQL("c") + ` AS blocked
			FROM fence, unnest($4::bigint[], $5::bigint[], $6::text[], $7::bigint[]) WITH ORDINALITY AS c(ordering_group, incarnation, commit_lsn, idx, o)),
		first AS MATERIALIZED (SELECT c.o, c.blocked, t.*, row_number() OVER w AS i, count(t.n) OVER (PARTITION BY c.o) AS seen, bool_or(t.n > $10 AND t.resend IS NULL) OVER w AS fresh, bool_or(t.bytes > $11) OVER w AS large
			FROM c LEFT JOIN LATERAL (SELECT t.n, t.resend, t.bytes, t.incarnation, t.commit_lsn, t.idx FROM cdc_relay.retry t
				WHERE ` + inSlotSQL("t") + ` AND t.ordering_group = c.ordering_group AND NOT c.blocked AND (t.incarnation, t.commit_lsn, t.idx) > (c.incarnation, c.commit_lsn, c.idx)
				ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $12) t ON true
			WINDOW w AS (PARTITION BY c.o ORDER BY t.incarnation, t.commit_lsn, t.idx)),
		picked AS MATERIALIZED (SELECT f.o, f.i, f.blocked, f.seen, CASE WHEN f.goes AND (f.before = 0 OR f.before < $9) THEN f.n END AS n
			FROM (SELECT g.*, sum(g.bytes) FILTER (WHERE g.goes) OVER (ORDER BY g.i, g.o) - g.bytes AS before
				FROM (SELECT f.*, NOT f.fresh AND f.i <= $8 AND (f.i = 1 OR NOT f.large) AS goes FROM first f) g) f)
		SELECT f.o, f.blocked, f.seen, t.n IS NOT NULL, ` + rowExpressions("t", false, "t.bytes <= $11") + `
		FROM (SELECT * FROM picked f WHERE f.i = 1 OR f.n IS NOT NULL) f LEFT JOIN LATERAL (SELECT * FROM cdc_relay.retry t WHERE t.n = f.n OFFSET 0) t ON true
		ORDER BY f.o, f.i`
}

// ReadRows implements Store.
func (p *Store) ReadRows(ctx context.Context, wants []store.Want, run int, size, acked int64) ([]store.RowRun, error) {
	if len(wants) == 0 {
		return nil, nil
	}
	runs, seen := make([]store.RowRun, len(wants)), make([]int, len(wants))
	args := append([]any{p.cfg.SystemID}, wantArrays(wants)...)
	err := p.runRead(ctx, "read rows to feed", p.readSQL(), append(args, run, size, acked, p.limits.largeFrom, run+1), func(rows pgx.Rows) error {
		var (
			at, count     int
			blocked, some bool
		)
		skip := make([]any, len(rows.RawValues()))
		skip[0], skip[1], skip[2], skip[3] = &at, &blocked, &count, &some
		if err := rows.Scan(skip...); err != nil {
			return err
		}
		of := &runs[at-1]
		of.Blocked, seen[at-1] = blocked, count
		if !some {
			return nil
		}
		row, err := p.scanRow(rows, nil, nil, nil, nil)
		if err != nil {
			return &store.Refused{Err: err}
		}
		of.Rows = append(of.Rows, row)
		return nil
	})
	for i := range runs {
		run := &runs[i]
		run.Group, run.More = wants[i].Group, seen[i] > len(run.Rows)
		if err == nil && len(run.Rows) > 0 && p.limits.isLarge(run.Rows[0].Bytes) {
			if run.Rows[0], err = p.readLarge(ctx, run.Rows[0]); run.Rows[0] == nil {
				run.Rows = nil
			}
		}
	}
	return runs, refusedIfDamaged(err)
}

// wantArrays returns the parameters of the wants.
func wantArrays(wants []store.Want) []any {
	return []any{
		valuesOf(wants, func(w store.Want) int64 { return int64(w.Group) }), valuesOf(wants, func(w store.Want) int64 { return w.After.Incarnation }),
		valuesOf(wants, func(w store.Want) string { return w.After.Position.Commit.String() }), valuesOf(wants, func(w store.Want) int64 { return int64(w.After.Position.Index) }),
	}
}

// readLarge reads a row that was read without the columns that are only sent; nil: it has gone. A
// read changes nothing, so whatever it fails of, the row may wait and others go on.
func (p *Store) readLarge(ctx context.Context, row *store.Row) (whole *store.Row, err error) {
	const what = "read a large row"
	table := "retry"
	if row.Dead {
		table = "dead_letter"
	}
	if err := p.recentFailure(what, row.Bytes); err != nil {
		return nil, &store.Refused{Row: row, Err: err}
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, p.limits.clientTimeout(row.Bytes))
	defer cancel()
	conn, err := p.pool.Acquire(bounded)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer conn.Release()
	done, err := p.extendTimeout(bounded, conn, row.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer done()
	sql := readFence + ` SELECT t.n, ` + rowExpressions("t", row.Dead, "true") + ` FROM fence LEFT JOIN cdc_relay.` + table + ` t ON t.n = $4 AND ` + byNumberSQL("t")
	err = dlq.Run(bounded, conn, p.cfg.Slot, p.cfg.Epoch, sql, []any{p.cfg.SystemID, row.N}, func(rows pgx.Rows) (err error) {
		whole, err = p.scanRow(rows, nil)
		return err
	})
	switch {
	case err == nil:
		p.noteSuccess(what, row.Bytes)
		return whole, nil
	case isFenced(err), ctx.Err() != nil:
		return nil, err
	}
	err = fmt.Errorf("%s: %w", what, redacted{err})
	if isRefusal(err) {
		return nil, &store.Refused{Row: row, Err: err}
	}
	return nil, &store.Refused{Row: row, Err: p.noteFailure(what, row.Bytes, time.Since(began), err)}
}

// blockedSQL is the condition that an open dead letter blocks the ordering group of alias. OFFSET
// 0: it is looked up for each.
func (p *Store) blockedSQL(alias string) string {
	if !p.cfg.Block {
		return `false`
	}
	return `EXISTS (SELECT FROM cdc_relay.dead_letter d WHERE ` + inSlotSQL("d") + ` AND d.ordering_group = ` + alias + `.ordering_group AND d.ordered AND d.state = 'open' OFFSET 0)`
}

// GroupsOfDestination implements Store.
func (p *Store) GroupsOfDestination(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	sql := readFence + ` SELECT t.ordering_group, t.incarnation, t.commit_lsn, t.idx FROM fence LEFT JOIN LATERAL (
			SELECT t.ordering_group, t.incarnation, t.commit_lsn::text AS commit_lsn, t.idx FROM cdc_relay.retry t
			WHERE ` + inSlotSQL("t") + ` AND t.exchange_or_topic = $4::bigint AND t.dest = $5::bigint AND (t.incarnation, t.commit_lsn, t.idx) > ($6::bigint, $7::text::pg_lsn, $8::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $9) t ON true`
	next = at
	args := []any{p.cfg.SystemID, int64(at.ExchangeOrTopic), int64(at.Dest), at.Incarnation, at.Position.Commit.String(), int64(at.Position.Index), limit}
	seen := map[uint64]bool{}
	err = p.runRead(ctx, "sweep", sql, args, func(rows pgx.Rows) error {
		var group int64
		pos, err := scanPosition(rows, &group, &next.Incarnation)
		next.Position = pos
		if !seen[uint64(group)] {
			seen[uint64(group)] = true
			groups = append(groups, uint64(group))
		}
		return err
	})
	return groups, next, err
}

// GroupsOfResends implements Store.
func (p *Store) GroupsOfResends(ctx context.Context, after store.ResentRow, limit int) (groups []uint64, last store.ResentRow, some bool, err error) {
	sql := readFence + ` SELECT t.ordering_group, t.resend, t.n, EXISTS (SELECT FROM cdc_relay.retry r WHERE ` + inSlotSQL("r") + ` AND r.resend IS NOT NULL) FROM fence LEFT JOIN LATERAL (
			SELECT t.ordering_group, t.resend, t.n FROM cdc_relay.retry t
			WHERE ` + inSlotSQL("t") + ` AND t.resend IS NOT NULL AND (t.resend, t.n) > ($4::bigint, $5::bigint) AND (t.next_attempt IS NULL OR t.next_attempt <= now())
				AND NOT EXISTS (SELECT FROM cdc_relay.bulk b WHERE b.job = t.resend AND b.state = 'cancelled') -- they are taken back
			ORDER BY t.resend, t.n LIMIT $6) t ON true`
	last = after
	seen := map[uint64]bool{}
	err = p.runRead(ctx, "read rows of resends", sql, []any{p.cfg.SystemID, after.Job, after.N, limit}, func(rows pgx.Rows) error {
		var group, job, n *int64
		err := rows.Scan(&group, &job, &n, &some)
		if err != nil || group == nil {
			return err
		}
		if last = (store.ResentRow{Job: *job, N: *n}); !seen[uint64(*group)] {
			seen[uint64(*group)] = true
			groups = append(groups, uint64(*group))
		}
		return nil
	})
	return groups, last, some, err
}

// NextDestination implements Store.
func (p *Store) NextDestination(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	sql := readFence + ` SELECT t.exchange_or_topic, t.dest FROM fence LEFT JOIN LATERAL (SELECT t.exchange_or_topic, t.dest FROM cdc_relay.retry t
			WHERE ` + inSlotSQL("t") + ` AND (t.exchange_or_topic, t.dest) > ($4::bigint, $5::bigint) ORDER BY t.exchange_or_topic, t.dest LIMIT 1) t ON true`
	err = p.runRead(ctx, "skip destination", sql, []any{p.cfg.SystemID, int64(at.ExchangeOrTopic), int64(at.Dest)}, func(rows pgx.Rows) error {
		var exchangeOrTopic, dest int64
		ok = true
		err := rows.Scan(&exchangeOrTopic, &dest)
		next = store.Cursor{ExchangeOrTopic: uint64(exchangeOrTopic), Dest: uint64(dest)}
		return err
	})
	return next, ok, err
}

// statsSQL takes the first row by position as the oldest one. Commit times have no index, and their
// order differs from that of positions by milliseconds at most.
var statsSQL = dlq.ByState + ` SELECT
	(SELECT count(*) FROM (SELECT FROM cdc_relay.retry WHERE slot = $1::text AND system_id = $2 LIMIT $3) r),
	(SELECT extract(epoch FROM clock_timestamp() - commit_time)::float8 FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2
		ORDER BY incarnation, commit_lsn, idx LIMIT 1),
	(SELECT count(*) FROM (SELECT FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state = 'open' LIMIT $3) d),
	(SELECT max(extract(epoch FROM clock_timestamp() - died_at)::float8) FROM g CROSS JOIN LATERAL (SELECT t.died_at FROM cdc_relay.dead_letter t
		WHERE t.slot = $1 AND t.system_id = $2 AND t.state = g.state AND t.class = g.class AND t.reason = g.reason ORDER BY t.died_at, t.n LIMIT 1) d
		WHERE g.state = 'open'),
	pg_total_relation_size('cdc_relay.retry') + pg_total_relation_size('cdc_relay.dead_letter')`

// Count counts what the tables hold of a slot; a result of limit means limit or more. A database
// without these tables holds no rows.
func Count(ctx context.Context, db dlq.Querier, slot, systemID string, limit int) (store.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, standardLimits.clientTimeout(0))
	defer cancel()
	var t store.Stats
	var deferred, dead *float64
	// It is planned again each time, as all statements on these tables are (see dlq.Run).
	err := db.QueryRow(ctx, statsSQL, pgx.QueryExecModeCacheDescribe, slot, systemID, limit).Scan(&t.Deferred, &deferred, &t.Dead, &dead, &t.Bytes)
	t.At = time.Now()
	var no *pgconn.PgError
	switch {
	case errors.As(err, &no) && no.Code == "42P01":
		return store.Stats{At: t.At}, nil
	case err != nil:
		return store.Stats{}, fmt.Errorf("count deferred events and dead letters: %w", err)
	}
	t.OldestDeferred, t.OldestDead = timeAgo(t.At, deferred), timeAgo(t.At, dead)
	return t, nil
}

// CountWithWaiting is Count, and what waits for some places: nil if that cannot be counted in time,
// which leaves the other numbers as they are.
func CountWithWaiting(ctx context.Context, db dlq.Querier, slot, systemID string, limit int, places []sink.Place) (store.Stats, error) {
	t, err := Count(ctx, db, slot, systemID, limit)
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, standardLimits.clientTimeout(0))
	defer cancel()
	if waiting, err := dlq.CountWaiting(ctx, db, slot, systemID, places); err == nil {
		t.Waiting = waiting
	}
	return t, nil
}

// timeAgo converts an age by the database's clock to a time by this process's clock.
func timeAgo(now time.Time, seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(*seconds * float64(time.Second)))
}

// reclaimFrom is the size, with indexes, from which on an empty table is worth an exclusive lock.
// The deferred events of a short pause stay below it, and their space is used again.
const reclaimFrom = 64 << 20

// reclaimableSQL reads whether the table is worth an exclusive lock. It also passes the entries of
// deleted rows that are not vacuumed yet, which must not be done under the lock.
const reclaimableSQL = readFence + ` SELECT $3::text <> '' AND pg_total_relation_size('cdc_relay.retry') >= $4 AND NOT EXISTS (SELECT FROM cdc_relay.retry) FROM fence`

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

// ReclaimSpace implements Store. A call without an answer may still be carried out: that is as safe
// as at any other time, so nothing has to wait for it.
func (p *Store) ReclaimSpace(ctx context.Context) (store.Reclaimed, error) {
	worth := false
	err := p.runRead(ctx, "read the size of the retry table", reclaimableSQL, []any{p.cfg.SystemID, p.limits.reclaimFrom}, func(rows pgx.Rows) error { return rows.Scan(&worth) })
	if err != nil || !worth {
		return store.ReclaimNothing, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.clientTimeout(0))
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("reclaim space: %w", err)
	}
	defer conn.Release()
	return p.truncateEmpty(ctx, conn)
}

func (p *Store) truncateEmpty(ctx context.Context, conn *pgxpool.Conn) (store.Reclaimed, error) {
	pg := conn.Conn().PgConn()
	slot, err := pg.EscapeString(p.cfg.Slot)
	if err != nil {
		return "", fmt.Errorf("reclaim space: %w", err)
	}
	results, err := pg.Exec(ctx, strings.NewReplacer("SLOT", slot, "EPOCH", strconv.FormatInt(p.cfg.Epoch, 10)).Replace(reclaimSQL)).ReadAll()
	var no *pgconn.PgError
	if errors.As(err, &no) {
		switch no.Code {
		case "55P03", "57014", "40P01": // no lock, no time, a deadlock
			return store.ReclaimInUse, nil
		case "42501":
			return store.ReclaimNothing, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("reclaim space: %w", redacted{err})
	}
	switch string(results[len(results)-1].Rows[0][0]) {
	case "fenced":
		return "", store.ErrFenced
	case "truncated":
		return store.ReclaimTruncated, nil
	}
	return store.ReclaimNothing, nil
}
