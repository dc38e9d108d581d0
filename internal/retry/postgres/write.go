// Defer and Copy write rows, ApplyResults the results of rows.

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// arrays is a table of parameters that a statement unnests: one array per column.
type arrays struct {
	names, types []string
	values       []any
}

func (a *arrays) add(name, typ string, values any) {
	a.names, a.types, a.values = append(a.names, name), append(a.types, typ), append(a.values, values)
}

// valuesOf is a column of parameters: a value of each item.
func valuesOf[T, V any](list []T, of func(T) V) []V {
	values := make([]V, len(list))
	for i := range list {
		values[i] = of(list[i])
	}
	return values
}

// table is "unnest($k::bigint[], …) AS x(name, …)" with these columns, k being the first
// parameter.
func (a *arrays) table(first int, names []string) string {
	params := make([]string, len(names))
	for i, name := range names {
		at := slices.Index(a.names, name)
		params[i] = "$" + strconv.Itoa(first+at) + "::" + a.types[at] + "[]"
	}
	return "unnest(" + strings.Join(params, ", ") + ") AS x(" + strings.Join(names, ", ") + ")"
}

// deferSQL inserts all rows or, when a position is taken by another event, none. From $4 on come
// the rows for retry, those for dead_letter. i is the row's index in the call.
var deferSQL = func() string {
	rows, deadLetters := deferArrays(nil, nil, nil), deferArrays(nil, nil, nil)
	second := 4 + len(rows.values)
	there := func(table, other string) string { // OFFSET 0: each position is looked up
		return `SELECT x.i, t.other FROM x CROSS JOIN LATERAL (SELECT ` + other + ` AS other FROM cdc_relay.` + table + ` t WHERE ` + oursSQL("t") + `
			AND t.incarnation = x.incarnation AND t.commit_lsn = x.commit_lsn::pg_lsn AND t.idx = x.idx OFFSET 0) t`
	}
	place := []string{"i", "incarnation", "commit_lsn", "idx", "id", "left_out", "commit_time"}
	// as store.StoredPosition.Matches has it
	another := "t.id IS DISTINCT FROM x.id AND (t.commit_time <> x.commit_time OR (t.id IS NOT NULL OR t.left_out IS NULL) AND (x.id IS NOT NULL OR x.left_out IS NULL))"
	insert := func(table, more, values string, a *arrays, first int) string {
		return `INSERT INTO cdc_relay.` + table + ` (slot, system_id, ` + fieldNames() + `, ` + more + `)
			SELECT $1, $3, ` + fieldList("x", map[string]string{"commit_lsn": "x.commit_lsn::pg_lsn"}) + `, ` + values + `
			FROM fence, ` + a.table(first, a.names) + `
			WHERE NOT EXISTS (SELECT FROM there WHERE other) AND x.i NOT IN (SELECT i FROM there)
			ON CONFLICT (slot, system_id, incarnation, commit_lsn, idx) DO NOTHING RETURNING n`
	}
	return writeFence + `, x AS MATERIALIZED (SELECT x.* FROM fence, ` + rows.table(4, place) + ` UNION ALL SELECT x.* FROM fence, ` + deadLetters.table(second, place) + `),
		there AS MATERIALIZED (` + there("retry", another) + ` UNION ALL ` +
		there("dead_letter", "t.state <> 'purged' AND "+another) + `),
		deferred AS (` + insert("retry", "next_attempt", "now() + make_interval(secs => x.next_in)", &rows, 4) + `),
		died AS (` + insert("dead_letter", "deferred_at", "now()", &deadLetters, second) + `)
		SELECT (SELECT count(*) FROM deferred) + (SELECT count(*) FROM died) + (SELECT count(DISTINCT i) FROM there),
			(SELECT min(i) FROM there WHERE other) FROM fence`
}()

// deferArrays returns the parameters for rows of one table; at has their indexes in the call.
func deferArrays(rows []*store.Row, records []tableRow, at []int32) (a arrays) {
	for _, f := range fields {
		a.add(f.name, f.typ, f.array(records))
	}
	a.add("next_in", "float8", valuesOf(rows, func(row *store.Row) *float64 {
		if row.NextAttempt.IsZero() {
			return nil
		}
		return new(max(0, time.Until(row.NextAttempt).Seconds()))
	}))
	a.add("i", "integer", at)
	return a
}

// Defer implements Store.
func (p *Store) Defer(ctx context.Context, rows []*store.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if known, err := p.askForLost(ctx, rows); known {
		return err
	}
	args := func(as storable) []any {
		var (
			of      [2][]*store.Row // for retry, for dead_letter
			records [2][]tableRow
			at      [2][]int32
		)
		for i, row := range rows {
			to := 0
			if row.Dead {
				to = 1
			}
			of[to], records[to], at[to] = append(of[to], row), append(records[to], p.encodeRow(row, as)), append(at[to], int32(i))
		}
		args := []any{p.cfg.SystemID}
		for to := range of {
			a := deferArrays(of[to], records[to], at[to])
			args = append(args, a.values...)
		}
		return args
	}
	var there int
	var other *int
	began := time.Now()
	err := p.runSizedWrite(ctx, deferWhat, sizeOf(rows), deferSQL, args, func(r pgx.Rows) error { return r.Scan(&there, &other) })
	switch {
	case err != nil:
		p.noteLost(rows, time.Since(began), err)
		return withRow(err, rows...)
	case other != nil:
		return store.PositionTaken(rows[*other])
	case there < len(rows):
		// Another statement wrote the position after this one began: the next try finds out which
		// event is there.
		return fmt.Errorf("defer: %d of %d rows were written by another statement", len(rows)-there, len(rows))
	}
	return nil
}

// deferWhat is what Defer does, for errors.
const deferWhat = "defer"

// lostRow is a large row whose Defer was not answered.
type lostRow struct {
	n    int64
	size int64
	took time.Duration
	err  error
}

// noteLost notes that the Defer of a large row failed, and that its outcome is unknown.
func (p *Store) noteLost(rows []*store.Row, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var doubt inDoubt
	if size := sizeOf(rows); len(rows) == 1 && p.limits.isLarge(size) && errors.As(err, &doubt) {
		p.lostDefer = &lostRow{rows[0].N, size, took, err}
	}
}

// askForLost finds out about the row of a Defer that was not answered, in place of its repetition.
// A row that breaks the connection each time (the line is too slow for it, a proxy or the server's
// memory too small) would be repeated for ever otherwise, before all others.
//
// The answer is certain. runWrite first ends the session of the lost statement, and waits until it
// is gone; so the statement is committed by then, or never will be. A row has its number from one
// statement alone, so the number tells whether it is. And it stays until then: the feeder reads no
// row, and carries out no request about one, before the writer has seen its commit. A dead letter
// that is purged meanwhile keeps its number.
//
// known is false when this is no such row: it is to be written.
func (p *Store) askForLost(ctx context.Context, rows []*store.Row) (known bool, err error) {
	p.mu.Lock()
	lost := p.lostDefer
	p.mu.Unlock()
	if lost == nil || len(rows) != 1 || rows[0].N != lost.n {
		return false, nil
	}
	there := false
	sql := writeFence + ` SELECT EXISTS (SELECT FROM cdc_relay.retry t WHERE t.n = $4 AND ` + byNumberSQL("t") + `)
		OR EXISTS (SELECT FROM cdc_relay.dead_letter t WHERE t.n = $4 AND ` + byNumberSQL("t") + `) FROM fence`
	args := func(storable) []any { return []any{p.cfg.SystemID, lost.n} }
	err = p.runWrite(ctx, deferWhat, sql, args, func(r pgx.Rows) error { return r.Scan(&there) })
	var no *store.Refused
	if errors.As(err, &no) { // it is about this question, not about the row
		err = no.Err
	}
	if err != nil {
		return true, err
	}
	p.mu.Lock()
	p.lostDefer = nil
	p.mu.Unlock()
	if there {
		p.noteSuccess(deferWhat, lost.size)
		return true, nil
	}
	return true, &store.Refused{Row: rows[0], Err: p.noteFailure(deferWhat, lost.size, lost.took, lost.err)}
}

// addNames adds the columns by which statements name rows: position and number. So a row that was
// deferred again at the same position does not match, and neither does another leader's row.
func (a *arrays) addNames(rows []*store.Row) {
	a.add("x_incarnation", "bigint", valuesOf(rows, func(r *store.Row) int64 { return r.Incarnation }))
	a.add("x_commit", "text", valuesOf(rows, func(r *store.Row) string { return r.Event.Position.Commit.String() }))
	a.add("x_idx", "bigint", valuesOf(rows, func(r *store.Row) int64 { return int64(r.Event.Position.Index) }))
	a.add("x_n", "bigint", valuesOf(rows, func(r *store.Row) int64 { return r.N }))
}

// namedSQL is the condition that t is the row that x names.
var namedSQL = `t.n = x_n AND t.incarnation = x_incarnation AND t.commit_lsn = x_commit::pg_lsn AND t.idx = x_idx AND ` + byNumberSQL("t")

// addRefusals adds the columns of the last rejections of rows; NULL class: no new one.
func (a *arrays) addRefusals(results []store.Result, as storable) {
	a.add("x_class", "text", valuesOf(results, func(r store.Result) *string {
		if r.Reason == "" {
			return nil
		}
		return new(r.Class.String())
	}))
	a.add("x_reason", "text", valuesOf(results, func(r store.Result) string { return string(r.Reason) }))
	a.add("x_error", "text", valuesOf(results, func(r store.Result) string { return as.errorText(r.Text) }))
	a.add("x_error_text", "text", valuesOf(results, func(r store.Result) *string { return as.fullText(r.Text) }))
	a.add("x_destination", "text", valuesOf(results, func(r store.Result) string { return as(store.BoundedText(r.Destination, store.TextSize)) }))
	a.add("x_attempts", "integer", valuesOf(results, func(r store.Result) int32 { return int32(r.Attempts) }))
}

// afterRefusal are the new values of the columns of a row for which x has a rejection; $4 is the
// time of the rejection, by our clock.
var afterRefusal = map[string]string{
	"class":           "CASE WHEN x_class IS NULL THEN t.class ELSE x_class END",
	"reason":          "CASE WHEN x_class IS NULL THEN t.reason ELSE x_reason END",
	"error":           "CASE WHEN x_class IS NULL THEN t.error ELSE x_error END",
	"error_text":      "CASE WHEN x_class IS NULL THEN t.error_text ELSE x_error_text END",
	"destination":     "CASE WHEN x_class IS NULL THEN t.destination ELSE x_destination END",
	"first_failed_at": "CASE WHEN x_class IS NULL THEN t.first_failed_at WHEN t.attempts = 0 AND x_attempts > 0 THEN $4::timestamptz ELSE coalesce(t.first_failed_at, $4::timestamptz) END",
	"failed_at":       "CASE WHEN x_class IS NULL THEN t.failed_at ELSE $4::timestamptz END",
	"attempts":        "CASE WHEN x_class IS NULL THEN t.attempts ELSE x_attempts END",
}

// assignments returns new values of columns as the assignments of an UPDATE.
func assignments(values map[string]string) (assignments string) {
	for _, f := range fields {
		if value, ok := values[f.name]; ok {
			assignments += f.name + " = " + value + ", "
		}
	}
	return assignments
}

// applyParameters are the parameters of ApplyResults: the rows to delete, to retry later, and to
// dead-letter.
type applyParameters struct{ delivered, backoff, dead arrays }

func applyArrays(results []store.Result, as storable) (a applyParameters) {
	var rows [3][]*store.Row
	var of [3][]store.Result
	for _, r := range results {
		rows[r.Kind], of[r.Kind] = append(rows[r.Kind], r.Row), append(of[r.Kind], r)
	}
	a.delivered.addNames(rows[store.Delivered])
	a.backoff.addNames(rows[store.Backoff])
	a.backoff.addRefusals(of[store.Backoff], as)
	a.backoff.add("x_after", "float8", valuesOf(of[store.Backoff], func(r store.Result) *float64 {
		if r.After <= 0 {
			return nil
		}
		return new(r.After.Seconds())
	}))
	a.dead.addNames(rows[store.Dead])
	a.dead.addRefusals(of[store.Dead], as)
	return a
}

// sql returns the statement. Its parameters from $5 on are those of args. A row is moved by DELETE
// … RETURNING: if its dead letter exists already, the statement fails and does nothing.
func (a *applyParameters) sql() string {
	first := 5
	from := func(a *arrays) string {
		sql := "fence, " + a.table(first, a.names)
		first += len(a.values)
		return sql
	}
	gone, wait, dead := from(&a.delivered), from(&a.backoff), from(&a.dead)
	return writeFence + `,
		gone AS (DELETE FROM cdc_relay.retry t USING ` + gone + ` WHERE ` + namedSQL + ` RETURNING t.relation, t.tx, t.id),
		sent AS (` + sent.InsertRowsSQL("gone", "$1") + `),
		waits AS (UPDATE cdc_relay.retry t SET ` + assignments(afterRefusal) + `next_attempt = now() + make_interval(secs => x_after) FROM ` + wait + ` WHERE ` + namedSQL + `),
		dead AS (DELETE FROM cdc_relay.retry t USING ` + dead + ` WHERE ` + namedSQL + ` RETURNING t.*, ` + strings.Join(a.dead.names, ", ") + `),
		moved AS (INSERT INTO cdc_relay.dead_letter (slot, system_id, ` + fieldNames() + `, deferred_at)
			SELECT t.slot, t.system_id, ` + fieldList("t", afterRefusal) + `, t.deferred_at FROM dead t)
		SELECT true FROM fence`
}

func (a *applyParameters) args(system string) []any {
	args := []any{system, time.Now()}
	for _, part := range []*arrays{&a.delivered, &a.backoff, &a.dead} {
		args = append(args, part.values...)
	}
	return args
}

var applySQL = func() string {
	a := applyArrays(nil, nil)
	return a.sql()
}()

// ApplyResults implements Store.
func (p *Store) ApplyResults(ctx context.Context, results []store.Result) error {
	if len(results) == 0 {
		return nil
	}
	args := func(as storable) []any {
		a := applyArrays(results, as)
		return a.args(p.cfg.SystemID)
	}
	rows := make([]*store.Row, len(results))
	var moved []*store.Row // the others' large columns are not written
	for i, r := range results {
		if rows[i] = r.Row; r.Kind == store.Dead {
			moved = append(moved, r.Row)
		}
	}
	return withRow(p.runSizedWrite(ctx, "apply results", sizeOf(moved), applySQL, args, func(pgx.Rows) error { return nil }), rows...)
}

const (
	copyRows  = 250     // of one statement, at most: the reader of the rows waits meanwhile
	copyBytes = 1 << 20 // of the rows of one statement, but for one that is larger
)

// copySQL inserts rows; $1 is the slot, $2 the system.
var copySQL = func() string {
	rows := copyArrays(nil, nil)
	return `INSERT INTO cdc_relay.retry (slot, system_id, next_attempt, ` + fieldNames() + `)
		SELECT $1, $2, x.next_attempt, ` + fieldList("x", map[string]string{"commit_lsn": "x.commit_lsn::pg_lsn"}) + ` FROM ` + rows.table(3, rows.names)
}()

func copyArrays(rows []tableRow, next []*time.Time) (a arrays) {
	for _, f := range fields {
		a.add(f.name, f.typ, f.array(rows))
	}
	a.add("next_attempt", "timestamptz", next)
	return a
}

// Copy copies rows into the retry table, in the transaction that is open on conn, until next
// returns io.EOF, and returns their number. It uses conn under the lock alone, and not while it
// waits for a row. In memory are the rows of one statement. A row is stored as Defer stores one
// that was never refused. There is no fence and no look at what is there: the caller's transaction
// has both.
//
// It is no COPY: the server waits in one for its client for as long as it takes, and nothing ends
// that wait if the process is frozen (TestFrozenRecover).
func (p *Store) Copy(ctx context.Context, conn *pgx.Conn, lock sync.Locker, next func() (*store.Row, error)) (copied int64, err error) {
	as := storableBy(conn.PgConn())
	var rows []tableRow
	var due []*time.Time
	size := int64(0)
	write := func() error {
		if len(rows) == 0 {
			return nil
		}
		lock.Lock()
		defer lock.Unlock()
		_, err := conn.Exec(ctx, copySQL, append([]any{p.cfg.Slot, p.cfg.SystemID}, copyArrays(rows, due).values...)...)
		if err != nil {
			return fmt.Errorf("copy rows into the retry table: %w", redacted{err})
		}
		copied += int64(len(rows))
		rows, due, size = rows[:0], due[:0], 0
		return nil
	}
	for {
		row, err := next()
		if errors.Is(err, io.EOF) {
			return copied, write()
		}
		if err != nil {
			return copied, err
		}
		r := p.encodeRow(row, as)
		if len(rows) == copyRows || size+r.bytes > copyBytes {
			if err := write(); err != nil {
				return copied, err
			}
		}
		if r.bytes <= copyBytes { // else it is written before next is asked again
			r.cloneValues()
		}
		rows, due, size = append(rows, r), append(due, nilIfZero(row.NextAttempt)), size+r.bytes
		if size > copyBytes {
			if err := write(); err != nil {
				return copied, err
			}
		}
	}
}

// cloneValues makes copies of the values that belong to somebody else.
func (r *tableRow) cloneValues() {
	for _, value := range []*[]byte{&r.routeName, &r.routingKey, &r.id, &r.aggregate, &r.key, &r.typ, &r.payload, &r.traceparent, &r.headers, &r.raw} {
		*value = bytes.Clone(*value)
	}
	if r.leftOut != nil {
		r.leftOut = new(*r.leftOut)
	}
	if r.resend != nil {
		r.resend = new(*r.resend)
	}
}
