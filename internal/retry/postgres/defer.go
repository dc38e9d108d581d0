// Defer writes rows.

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// arrays is a table of parameters that a statement unnests: one array per column.
type arrays struct {
	names, types []string
	values       []any
}

func (a *arrays) add(name, typ string, values any) {
	a.names, a.types, a.values = append(a.names, name), append(a.types, typ), append(a.values, values)
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
		return `SELECT x.i, t.other FROM x CROSS JOIN LATERAL (SELECT ` + other + ` AS other FROM cdc_relay.` + table + ` t WHERE ` + ours("t") + `
			AND t.incarnation = x.incarnation AND t.commit_lsn = x.commit_lsn::pg_lsn AND t.idx = x.idx OFFSET 0) t`
	}
	place := []string{"i", "incarnation", "commit_lsn", "idx", "id", "left_out", "commit_time"}
	// as store.Owned.Matches has it
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
	next := make([]*float64, len(rows))
	for i, row := range rows {
		if !row.NextAttempt.IsZero() {
			secs := max(0, time.Until(row.NextAttempt).Seconds())
			next[i] = &secs
		}
	}
	a.add("next_in", "float8", next)
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
			of[to], records[to], at[to] = append(of[to], row), append(records[to], p.encode(row, as)), append(at[to], int32(i))
		}
		args := []any{p.c.SystemID}
		for to := range of {
			a := deferArrays(of[to], records[to], at[to])
			args = append(args, a.values...)
		}
		return args
	}
	var (
		there int
		other *int
	)
	began := time.Now()
	err := p.changeRows(ctx, deferring, sizeOf(rows), deferSQL, args, func(r pgx.Rows) error { return r.Scan(&there, &other) })
	switch {
	case err != nil:
		p.noteLost(rows, time.Since(began), err)
		return withRow(err, rows...)
	case other != nil:
		return store.TakenPosition(rows[*other])
	case there < len(rows):
		// Another statement wrote the position after this one began: the next try finds out which
		// event is there.
		return fmt.Errorf("defer: %d of %d rows were written by another statement", len(rows)-there, len(rows))
	}
	return nil
}

// deferring is what Defer does, for errors.
const deferring = "defer"

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
		p.lost = &lostRow{rows[0].N, size, took, err}
	}
}

// askForLost finds out about the row of a Defer that was not answered, in place of its repetition.
// A row that breaks the connection each time (the line is too slow for it, a proxy or the server's
// memory too small) would be repeated for ever otherwise, before all others.
//
// The answer is certain. change first ends the session of the lost statement, and waits until it is
// gone; so the statement is committed by then, or never will be. A row has its number from one
// statement alone, so the number tells whether it is. And it stays until then: the feeder reads no
// row, and carries out no request about one, before the writer has seen its commit. A dead letter
// that is purged meanwhile keeps its number.
//
// known is false when this is no such row: it is to be written.
func (p *Store) askForLost(ctx context.Context, rows []*store.Row) (known bool, err error) {
	p.mu.Lock()
	lost := p.lost
	p.mu.Unlock()
	if lost == nil || len(rows) != 1 || rows[0].N != lost.n {
		return false, nil
	}
	there := false
	sql := writeFence + ` SELECT EXISTS (SELECT FROM cdc_relay.retry t WHERE t.n = $4 AND ` + byNumber("t") + `)
		OR EXISTS (SELECT FROM cdc_relay.dead_letter t WHERE t.n = $4 AND ` + byNumber("t") + `) FROM fence`
	args := func(storable) []any { return []any{p.c.SystemID, lost.n} }
	err = p.change(ctx, deferring, sql, args, func(r pgx.Rows) error { return r.Scan(&there) })
	var no *store.Refused
	if errors.As(err, &no) { // it is about this question, not about the row
		err = no.Err
	}
	if err != nil {
		return true, err
	}
	p.mu.Lock()
	p.lost = nil
	p.mu.Unlock()
	if there {
		p.succeeded(deferring, lost.size)
		return true, nil
	}
	return true, &store.Refused{Row: rows[0], Err: p.failed(deferring, lost.size, lost.took, lost.err)}
}
