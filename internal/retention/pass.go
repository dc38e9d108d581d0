// Which rows may be deleted: the SQL, and why nothing that was not delivered is among them.
//
// A row may be deleted when
//
//  1. it is in the sent set of our slot: the broker has confirmed its event. See package sent.
//  2. every event of its transaction is settled, and none of them is an open dead letter, whatever
//     its id: an id that a transaction wrote twice, or that was changed since, may name the row of
//     another event of it, and a dead letter of a large row has its values in the table alone.
//  3. it is in the sent set of every other slot that sends its table, or was there before that
//     slot was (schema.OutboxTable.First). A slot that is not ready counts like any other. As long
//     as the tables that a slot sends are not known, it counts for every table: it may have to
//     read from any of them what it has not recorded. Which rows were there before a slot of
//     another system is not known here: its transaction numbers are not ours.
//  4. its delivery was recorded long enough ago.
//
// A row that waits in the retry table, or is a dead letter, was not confirmed, so it is in no sent
// set. It gets its entry when it is confirmed, by the statement that removes it from its table.
//
// First the rows of a group of parts are found, in one snapshot. All events of their transactions
// are known to be settled before this snapshot is taken, so it shows all dead letters that these
// transactions will ever have. Then the rows are deleted in batches. Each statement checks again
// whether a row still has the transaction and the id that were delivered, since VACUUM may have put
// another row in its place. A row that somebody changes meanwhile is left to the next pass. A new
// leader raises the epoch, which waits for a statement that has the fence, and the next statement
// finds it raised.
//
// A part of the sent set is dropped once none of its rows is left. The pass looks for such rows
// only after the part's transactions have ended: a row whose transaction still waits, for a
// synchronous standby, is not visible yet.

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// ripeSQL lists the parts of the sent set of slot $1 that are older than $3 seconds and whose
// transactions the slot is past: they had ended in the snapshot $2. The parts come in the order of
// their age, at most $6 of them, behind the part ($4, $5).
const ripeSQL = `
SELECT relation, chunk, n, at::text, extract(epoch FROM now() - at)::float8, pg_column_size(digests)
FROM cdc_relay.sent
WHERE slot = $1::text
	AND at <= now() - make_interval(secs => $3::float8)
	AND (at, n) > ($4::timestamptz, $5::bigint)
	AND ` + partsEnded + `
ORDER BY at, n
LIMIT $6::int`

// partsEnded is the condition that all transactions of a part had ended in the snapshot $2.
const partsEnded = `last_tx < pg_snapshot_xmax($2::pg_snapshot)::text::bigint
	AND NOT EXISTS (SELECT FROM pg_snapshot_xip($2::pg_snapshot) x WHERE x::text::bigint BETWEEN first_tx AND last_tx)`

// findSQL finds the rows of a leaf that a group of parts names, with their digests, and what keeps
// them: a slot that still needs the row, or "" and true for a dead letter of its transaction, or a
// copy that waits and has its values in the table alone. $1 is our slot, $2 the epoch, $3 the
// relation, $4 the chunk, $5 the numbers of the parts, $6 and $7 the OIDs and quoted names of the
// table and all its relatives.
func findSQL(l sent.Leaf, d *sent.Description) string {
	column, oid := "t."+pgx.Identifier{d.Transaction}.Sanitize(), strconv.FormatUint(uint64(l.OID), 10)
	bound := func(of string) string {
		if d.Bigint {
			return "(SELECT " + of + " FROM parts)"
		}
		return "(SELECT " + of + " FROM parts)::text::xid8"
	}
	return dlq.ReadFence + `,
parts AS MATERIALIZED (
	SELECT first_tx, last_tx, digests FROM cdc_relay.sent
	WHERE slot = $1::text AND relation = $3::oid AND chunk = $4::bigint AND n = ANY ($5::bigint[])),
digests AS MATERIALIZED (SELECT DISTINCT unnest(digests) AS digest FROM parts),
dead AS MATERIALIZED (
	SELECT tx FROM cdc_relay.dead_letter
	WHERE state = 'open' AND tx BETWEEN (SELECT min(first_tx) FROM parts) AND (SELECT max(last_tx) FROM parts)
	UNION SELECT tx FROM cdc_relay.retry
	WHERE left_out IS NOT NULL AND tx BETWEEN (SELECT min(first_tx) FROM parts) AND (SELECT max(last_tx) FROM parts)),
others AS MATERIALIZED (
	SELECT s.slot::text AS slot, CASE WHEN of.firsts IS NULL OR s.system_id <> (SELECT system_id FROM cdc_relay.slots WHERE slot = $1::text) THEN '{` + noRows + `}' ELSE of.firsts END AS firsts
	FROM cdc_relay.slots s CROSS JOIN LATERAL (
		SELECT array_agg(coalesce(nullif(e.value->>'first', ''), '` + noRows + `')) AS firsts
		FROM jsonb_each(coalesce(s.sends->'tables', '{}')) e
		WHERE e.key = ANY ($7::text[]) OR (e.value->>'oid')::oid = ANY ($6::oid[])) of
	WHERE s.slot <> $1::text AND (of.firsts IS NOT NULL OR s.state <> 'ready' AND coalesce(s.sends->'tables', '{}') = '{}')),
others_sent AS MATERIALIZED (
	SELECT slot::text, unnest(digests) AS digest FROM cdc_relay.sent
	WHERE slot IN (SELECT slot FROM others) AND at < 'infinity' AND relation = ANY (` + sent.OIDArray(l.Ancestors) + `) AND chunk = $4::bigint)
SELECT m.at, m.digest,
	coalesce((
		SELECT min(o.slot) FROM others o
		WHERE (o.slot, m.digest) NOT IN (SELECT slot, digest FROM others_sent)
			AND EXISTS (SELECT FROM unnest(o.firsts) f WHERE NOT coalesce(pg_visible_in_snapshot(m.tx::text::xid8, f::pg_snapshot), false))), ''),
	m.tx IN (SELECT tx FROM dead)
FROM (
	SELECT t.ctid AS at, ` + sent.TxSQL(column, d.Bigint) + ` AS tx, ` + sent.DigestSQL(sent.TxSQL(column, d.Bigint), d.IDSQL()) + ` AS digest
	FROM ONLY ` + l.Name + ` t
	WHERE ` + column + ` >= ` + bound("min(first_tx)") + `
		AND ` + column + ` <= ` + bound("max(last_tx)") + `
		AND EXISTS (SELECT FROM fence)
		AND t.tableoid = ` + oid + `
		AND ($3::oid = ` + oid + ` OR EXISTS (SELECT FROM pg_partition_tree($3::oid) WHERE relid = ` + oid + `))
	OFFSET 0) m
WHERE m.digest IN (SELECT digest FROM digests)`
}

// noRows is schema.NoRows: a slot that sends all rows.
const noRows = "3:3:"

// removeSQL deletes rows of a leaf: $3 are their ctids, $4 their digests. It returns one row:
// whether the epoch is still ours, and how many rows were deleted.
func removeSQL(l sent.Leaf, d *sent.Description) string {
	column := "t." + pgx.Identifier{d.Transaction}.Sanitize()
	return dlq.WriteFence + `,
chosen AS MATERIALIZED (
	SELECT t.ctid AS at FROM ONLY ` + l.Name + ` t
	WHERE t.ctid = ANY ($3::tid[]) AND t.tableoid = ` + strconv.FormatUint(uint64(l.OID), 10) + `
		AND ` + sent.DigestSQL(sent.TxSQL(column, d.Bigint), d.IDSQL()) + ` = ANY ($4::bigint[])
		AND EXISTS (SELECT FROM fence)
	FOR UPDATE OF t SKIP LOCKED),
gone AS (
	DELETE FROM ONLY ` + l.Name + ` d
	WHERE d.ctid = ANY (array(SELECT at FROM chosen))
	RETURNING 1)
SELECT EXISTS (SELECT FROM fence), (SELECT count(*) FROM gone)`
}

// dropSQL removes parts of the sent set whose rows are all gone from the table.
const dropSQL = dlq.WriteFence + `,
gone AS (
	DELETE FROM cdc_relay.sent USING fence
	WHERE slot = $1::text AND relation = $3::oid AND chunk = $4::bigint AND n = ANY ($5::bigint[]))
SELECT EXISTS (SELECT FROM fence)`

// settings are the statements with which each transaction begins. With them a transaction waits for
// a lock no longer than 100 ms. It does not wait for its own commit to be durable: a deletion that
// a crash of the server undoes is made again. The checks of the table are planned once.
const settings = `SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '10s'; SET LOCAL synchronous_commit = off; SET LOCAL jit = off;
	SET LOCAL plan_cache_mode = force_generic_plan`

// planSettings are the settings of the statements of this file, set after the checks. With them
// tables are read by their indexes, and no table is read whole, whatever its statistics say.
const planSettings = `SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off`

// findSettings is planSettings for findSQL, with more time, because it may read some million rows
// of one transaction.
const findSettings = planSettings + `; SET LOCAL statement_timeout = '1min'`

const (
	// statementTimeout and findTimeout bound statements on a server that does not answer. A server
	// that answers ends them earlier, by settings and findSettings.
	statementTimeout = 20 * time.Second
	findTimeout      = 70 * time.Second
	batchRows        = 100     // rows that one transaction deletes: more would delay live events
	pageParts        = 1000    // parts that are listed at once
	partBytes        = 8 << 10 // bytes of digests whose rows are found together, or one part
	// After a transaction the pass rests for restFactor times as long as the transaction took, at
	// most longestRest.
	restFactor  = 3
	longestRest = 10 * time.Second
)

// pass is the state of one pass through the sent set.
type pass struct {
	*Retention
	began    time.Time
	tables   []sent.Description
	warnings map[string]bool // texts of the warnings of this pass

	failed  map[uint32]bool // relations of which nothing more is tried in this pass
	heldBy  string          // for Snapshot.HeldBy
	overdue time.Time       // for Snapshot.Overdue
	err     error           // the first error of a table
}

// parts are parts of the sent set, of one relation and chunk, whose rows are found together.
type parts struct {
	relation uint32
	chunk    int64
	numbers  []int64
	size     int           // bytes of their digests
	age      time.Duration // of the oldest
}

// runPass makes one pass: it deletes the rows of all parts that are old enough, in one small
// transaction after the other. A relation that fails does not keep others waiting. An error is
// returned only if it ended the whole pass.
func (r *Retention) runPass(ctx context.Context) error {
	p := &pass{Retention: r, began: time.Now(), failed: map[uint32]bool{}, warnings: map[string]bool{}}
	err := p.describeTables(ctx)
	if err == nil {
		err = r.lookAtEnd(ctx)
	}
	if err == nil && r.settledLook.end > 0 {
		err = p.deleteRipe(ctx)
	}
	if ctx.Err() != nil {
		return err
	}
	for said := range r.loggedWarnings {
		if !p.warnings[said] {
			delete(r.loggedWarnings, said)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot.HeldBy, r.snapshot.Overdue, r.snapshot.Error = p.heldBy, p.overdue, ""
	if failed := cmp.Or(err, p.err); failed != nil {
		r.snapshot.Error = failed.Error()
		return err
	}
	r.snapshot.LastPass = time.Now()
	return nil
}

// describeTables reads what the tables are, from the catalogue alone. A table that lacks the column
// of the transaction is logged and left out.
func (p *pass) describeTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for _, t := range p.cfg.Tables {
		d, err := sent.Describe(ctx, p.cfg.Pool, t)
		if err != nil {
			p.warnOnce(t.String(), err)
			return err
		}
		if what, fix := missingColumn(&d, t); what != "" {
			p.warnOnce(t.String(), &refusal{what, fix})
			continue
		}
		p.tables = append(p.tables, d)
	}
	return nil
}

// deleteRipe deletes the rows of all parts that are ripe, the oldest first.
func (p *pass) deleteRipe(ctx context.Context) error {
	at, n := "-infinity", int64(0)
	for {
		list, last, count, err := p.ripeParts(ctx, at, n)
		if err != nil {
			return err
		}
		for _, of := range list {
			if err := p.deleteParts(ctx, of); err != nil {
				return err
			}
		}
		if count < pageParts {
			return nil
		}
		at, n = last.at, last.n
	}
}

// cursor is the last part of a page, behind which the next page begins.
type cursor struct {
	at string
	n  int64
}

// ripeParts reads one page of parts behind (at, n), and groups them. last is the last part of the
// page, and count is how many parts it has.
func (p *pass) ripeParts(ctx context.Context, at string, n int64) (list []*parts, last cursor, count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := p.cfg.Pool.Query(ctx, ripeSQL, p.cfg.Slot, p.settledLook.snapshot, p.cfg.Keep.Seconds(), at, n, pageParts)
	if err != nil {
		return nil, last, 0, fmt.Errorf("read cdc_relay.sent: %w", err)
	}
	var of parts
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&of.relation, &of.chunk, &last.n, &last.at, &age, &of.size}, func() error {
		count++
		i := slices.IndexFunc(list, func(l *parts) bool {
			return l.relation == of.relation && l.chunk == of.chunk && l.size+of.size <= partBytes
		})
		if i < 0 {
			i = len(list)
			list = append(list, &parts{relation: of.relation, chunk: of.chunk, age: time.Duration(age * float64(time.Second))})
		}
		list[i].numbers, list[i].size = append(list[i].numbers, last.n), list[i].size+of.size
		return nil
	})
	if err != nil {
		return nil, last, 0, fmt.Errorf("read cdc_relay.sent: %w", err)
	}
	return list, last, count, nil
}

// deleteParts deletes the rows of some parts, and the parts themselves when no row is left. Parts
// of a table that is not configured stay, because the table's columns are not known.
func (p *pass) deleteParts(ctx context.Context, of *parts) error {
	if p.failed[of.relation] {
		p.noteOverdue(of)
		return nil
	}
	i := slices.IndexFunc(p.tables, func(d sent.Description) bool { return slices.Contains(d.Family, of.relation) })
	if i < 0 {
		return nil
	}
	d, some := &p.tables[i], false
	for _, l := range d.Leaves {
		if !slices.Contains(l.Ancestors, of.relation) {
			continue
		}
		left, err := p.deleteFrom(ctx, d, l, of)
		var fenced *event.Stop
		switch {
		case err == nil:
			some = some || left
			continue
		case ctx.Err() != nil || errors.As(err, &fenced):
			return err
		}
		// The parts stay as they are, and the next pass looks again.
		p.closeConn()
		p.failed[of.relation], some = !isOfRows(err), true
		p.err = cmp.Or(p.err, err)
		if !isPassing(err) {
			p.warnOnce(l.Name, err)
		}
	}
	if some {
		p.noteOverdue(of)
		return nil
	}
	return p.withConn(ctx, statementTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		var ours bool
		err := conn.QueryRow(ctx, dropSQL, p.cfg.Slot, p.cfg.Epoch, of.relation, of.chunk, of.numbers).Scan(&ours)
		return p.fencedUnless(ours, err)
	})
}

// noteOverdue notes since when parts that have to stay wait to be deleted.
func (p *pass) noteOverdue(of *parts) {
	if since := p.began.Add(p.cfg.Keep - of.age); p.overdue.IsZero() || since.Before(p.overdue) {
		p.overdue = since
	}
}

// deletableRows are rows of one leaf that may be deleted: where they are, and what identifies them.
type deletableRows struct {
	at      []pgtype.TID
	digests []int64
}

// deleteFrom deletes the rows of parts from one leaf. left is true if some of these rows are still
// there.
func (p *pass) deleteFrom(ctx context.Context, d *sent.Description, l sent.Leaf, of *parts) (left bool, err error) {
	if none := missingIndex(d, l); none != nil {
		return true, none
	}
	var rows deletableRows
	err = p.withConn(ctx, findTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return sent.DeleteFromTable(ctx, conn, l.Name, settings, func(tx pgx.Tx) (err error) {
			rows, left, err = p.findRows(ctx, tx, d, l, of)
			return err
		})
	})
	if err != nil {
		return true, fmt.Errorf("find delivered rows: %w", err)
	}
	sql := removeSQL(l, d)
	for len(rows.at) > 0 {
		n := min(len(rows.at), batchRows)
		gone, err := p.removeBatch(ctx, l, sql, deletableRows{rows.at[:n], rows.digests[:n]})
		if err != nil {
			return true, fmt.Errorf("delete delivered rows: %w", err)
		}
		left = left || gone < n // somebody has them locked, or has changed them, or refers to them
		rows = deletableRows{rows.at[n:], rows.digests[n:]}
	}
	return left, nil
}

// findRows reads which rows of a leaf may be deleted. left is true if there are others that have to
// stay.
func (p *pass) findRows(ctx context.Context, tx pgx.Tx, d *sent.Description, l sent.Leaf, of *parts) (rows deletableRows, left bool, err error) {
	if _, err := tx.Exec(ctx, findSettings); err != nil {
		return rows, false, err
	}
	result, err := tx.Query(ctx, findSQL(l, d), p.cfg.Slot, p.cfg.Epoch, of.relation, of.chunk, of.numbers, d.Family, d.Names)
	if err != nil {
		return rows, false, err
	}
	var at pgtype.TID
	var digest int64
	var holder string
	var dead bool
	_, err = pgx.ForEachRow(result, []any{&at, &digest, &holder, &dead}, func() error {
		if holder != "" || dead {
			left = true
			p.heldBy = cmp.Or(p.heldBy, holder)
			return nil
		}
		rows.at, rows.digests = append(rows.at, at), append(rows.digests, digest)
		return nil
	})
	return rows, left, err
}

// removeBatch deletes a batch of rows. A row to which another table refers cannot be deleted: it is
// found by halving the batch, and stays.
func (p *pass) removeBatch(ctx context.Context, l sent.Leaf, sql string, rows deletableRows) (gone int, err error) {
	err = p.withConn(ctx, statementTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return sent.DeleteFromTable(ctx, conn, l.Name, settings, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, planSettings); err != nil {
				return err
			}
			var ours bool
			err := tx.QueryRow(ctx, sql, p.cfg.Slot, p.cfg.Epoch, rows.at, rows.digests).Scan(&ours, &gone)
			return p.fencedUnless(ours, err)
		})
	})
	switch {
	case err == nil:
		if p.cfg.Deleted != nil && gone > 0 {
			p.cfg.Deleted(gone)
		}
		return gone, nil
	case !sqlClass(err, "23"):
		return 0, err
	case len(rows.at) == 1:
		p.warnOnce(l.Name, err)
		return 0, nil
	}
	half := len(rows.at) / 2
	for _, part := range []deletableRows{{rows.at[:half], rows.digests[:half]}, {rows.at[half:], rows.digests[half:]}} {
		n, err := p.removeBatch(ctx, l, sql, part)
		if gone += n; err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// fencedUnless returns the error of a statement that checks the epoch: err, or the Stop of a fenced
// leader if the epoch is no longer ours.
func (r *Retention) fencedUnless(ours bool, err error) error {
	if err == nil && !ours {
		return dlq.Fenced(r.cfg.Slot, r.cfg.Epoch)
	}
	return err
}

// withConn calls do with the connection of the pass, for at most patience, and rests afterwards: so
// a pass spends at most a quarter of its time in the database.
func (p *pass) withConn(ctx context.Context, patience time.Duration, do func(context.Context, *pgx.Conn) error) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if p.cfg.Work != nil {
		p.cfg.Work(true)
		defer p.cfg.Work(false)
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, patience)
	err = do(bounded, conn)
	cancel()
	rest := time.NewTimer(min(restFactor*time.Since(began), longestRest))
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-rest.C:
	}
	return err
}

// connect takes a connection out of the pool, once for all passes, so that the checks of each
// transaction are planned once. The connection is closed after an error and at the end, and never
// given back to the pool: see sent.InOwnConnection.
func (r *Retention) connect(ctx context.Context) (*pgx.Conn, error) {
	if r.conn != nil {
		return r.conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	conn, err := r.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	r.conn = conn.Hijack()
	return r.conn, nil
}

// closeConn closes the connection of the passes, if there is one. The next pass takes another one.
func (r *Retention) closeConn() {
	if r.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.conn.Close(ctx) // what is open on it is rolled back
	r.conn = nil
}
