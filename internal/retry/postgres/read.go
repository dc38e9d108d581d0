// Read reads the rows of ordering groups, behind the last one that was delivered.

package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
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
	return readFence + `, c AS MATERIALIZED (SELECT c.o, c.ordering_group, c.incarnation, c.commit_lsn::pg_lsn AS commit_lsn, c.idx, ` + p.blocked("c") + ` AS blocked
			FROM fence, unnest($4::bigint[], $5::bigint[], $6::text[], $7::bigint[]) WITH ORDINALITY AS c(ordering_group, incarnation, commit_lsn, idx, o)),
		first AS MATERIALIZED (SELECT c.o, c.blocked, t.*, row_number() OVER w AS i, count(t.n) OVER (PARTITION BY c.o) AS seen, bool_or(t.n > $10 AND t.resend IS NULL) OVER w AS fresh, bool_or(t.bytes > $11) OVER w AS large
			FROM c LEFT JOIN LATERAL (SELECT t.n, t.resend, t.bytes, t.incarnation, t.commit_lsn, t.idx FROM cdc_relay.retry t
				WHERE ` + inSlot("t") + ` AND t.ordering_group = c.ordering_group AND NOT c.blocked AND (t.incarnation, t.commit_lsn, t.idx) > (c.incarnation, c.commit_lsn, c.idx)
				ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $12) t ON true
			WINDOW w AS (PARTITION BY c.o ORDER BY t.incarnation, t.commit_lsn, t.idx)),
		picked AS MATERIALIZED (SELECT f.o, f.i, f.blocked, f.seen, CASE WHEN f.goes AND (f.before = 0 OR f.before < $9) THEN f.n END AS n
			FROM (SELECT g.*, sum(g.bytes) FILTER (WHERE g.goes) OVER (ORDER BY g.i, g.o) - g.bytes AS before
				FROM (SELECT f.*, NOT f.fresh AND f.i <= $8 AND (f.i = 1 OR NOT f.large) AS goes FROM first f) g) f)
		SELECT f.o, f.blocked, f.seen, t.n IS NOT NULL, ` + rowExpressions("t", false, "t.bytes <= $11") + `
		FROM (SELECT * FROM picked f WHERE f.i = 1 OR f.n IS NOT NULL) f LEFT JOIN LATERAL (SELECT * FROM cdc_relay.retry t WHERE t.n = f.n OFFSET 0) t ON true
		ORDER BY f.o, f.i`
}

// Read implements Store.
func (p *Store) Read(ctx context.Context, wants []store.Want, run int, size, acked int64) ([]store.Run, error) {
	if len(wants) == 0 {
		return nil, nil
	}
	runs, seen := make([]store.Run, len(wants)), make([]int, len(wants))
	args := append([]any{p.c.SystemID}, wantArrays(wants)...)
	err := p.read(ctx, "read rows to feed", p.readSQL(), append(args, run, size, acked, p.limits.large, run+1), func(rows pgx.Rows) error {
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
	return runs, asRowError(err)
}

// wantArrays returns the parameters of the wants.
func wantArrays(wants []store.Want) []any {
	group, incarnation, index := make([]int64, len(wants)), make([]int64, len(wants)), make([]int64, len(wants))
	commit := make([]string, len(wants))
	for i, w := range wants {
		group[i], incarnation[i] = int64(w.Group), w.After.Incarnation
		commit[i], index[i] = w.After.Position.Commit.String(), int64(w.After.Position.Index)
	}
	return []any{group, incarnation, commit, index}
}

// readLarge reads a row that was read without the columns that are only sent; nil: it has gone. A
// read changes nothing, so whatever it fails of, the row may wait and others go on.
func (p *Store) readLarge(ctx context.Context, row *store.Row) (whole *store.Row, err error) {
	const what = "read a large row"
	table := "retry"
	if row.Dead {
		table = "dead_letter"
	}
	if err := p.failedLately(what, row.Bytes); err != nil {
		return nil, &store.Refused{Row: row, Err: err}
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, p.limits.patience(row.Bytes))
	defer cancel()
	conn, err := p.pool.Acquire(bounded)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer conn.Release()
	done, err := p.giveTime(bounded, conn, row.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer done()
	sql := readFence + ` SELECT t.n, ` + rowExpressions("t", row.Dead, "true") + ` FROM fence LEFT JOIN cdc_relay.` + table + ` t ON t.n = $4 AND ` + byNumber("t")
	err = p.run(bounded, conn, sql, []any{p.c.SystemID, row.N}, func(rows pgx.Rows) (err error) {
		whole, err = p.scanRow(rows, nil)
		return err
	})
	switch {
	case err == nil:
		p.succeeded(what, row.Bytes)
		return whole, nil
	case isFenced(err), ctx.Err() != nil:
		return nil, err
	}
	err = fmt.Errorf("%s: %w", what, redacted{err})
	if isRefusal(err) {
		return nil, &store.Refused{Row: row, Err: err}
	}
	return nil, &store.Refused{Row: row, Err: p.failed(what, row.Bytes, time.Since(began), err)}
}
