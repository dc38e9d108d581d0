// Runs, Sweep, Skip and Due find the rows to feed.

package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// runsSQL first chooses the rows of each ordering group, by positions and sizes alone, and then
// reads them. The limit on size takes rows in the order of their index in the ordering group (i).
// So no ordering group has a gap, and every first row comes before any second row. A large row is
// the only one of its run, and comes without the columns that are only sent: readLarge reads it.
func (p *Store) runsSQL() string {
	return readFence + `, c AS MATERIALIZED (SELECT c.ordering_group, c.o, ` + p.blocked("c") + ` AS blocked FROM fence, unnest($4::bigint[]) WITH ORDINALITY AS c(ordering_group, o)),
		first AS MATERIALIZED (SELECT c.o, t.*, row_number() OVER w AS i, bool_or(t.n > $7) OVER w AS fresh, bool_or(t.bytes > $8) OVER w AS large
			FROM c CROSS JOIN LATERAL (SELECT t.n, t.bytes, t.incarnation, t.commit_lsn, t.idx FROM cdc_relay.retry t
				WHERE ` + inSlot("t") + ` AND t.ordering_group = c.ordering_group AND NOT c.blocked ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $5) t
			WINDOW w AS (PARTITION BY c.o ORDER BY t.incarnation, t.commit_lsn, t.idx)),
		picked AS MATERIALIZED (SELECT f.n, f.more FROM (SELECT f.n, f.i = 1 OR NOT f.large AS goes, coalesce(lead(f.large) OVER (PARTITION BY f.o ORDER BY f.i), false) AS more,
				sum(f.bytes) FILTER (WHERE f.i = 1 OR NOT f.large) OVER (ORDER BY f.i, f.o) - f.bytes AS before FROM first f WHERE NOT f.fresh) f
			WHERE f.goes AND (f.before = 0 OR f.before < $6))
		SELECT c.ordering_group, c.blocked, t.n IS NOT NULL, coalesce(more, false), ` + rowExpressions("t", false, "t.bytes <= $8") + `
		FROM fence LEFT JOIN (c LEFT JOIN (picked JOIN cdc_relay.retry t USING (n)) ON t.ordering_group = c.ordering_group) ON c.blocked OR EXISTS (SELECT FROM first f WHERE f.o = c.o)
		ORDER BY c.o, t.incarnation, t.commit_lsn, t.idx`
}

// blocked is the condition that an open dead letter blocks the ordering group of alias. OFFSET 0:
// it is looked up for each.
func (p *Store) blocked(alias string) string {
	if !p.c.Block {
		return `false`
	}
	return `EXISTS (SELECT FROM cdc_relay.dead_letter d WHERE ` + inSlot("d") + ` AND d.ordering_group = ` + alias + `.ordering_group AND d.ordered AND d.state = 'open' OFFSET 0)`
}

// Runs implements Store.
func (p *Store) Runs(ctx context.Context, groups []uint64, run int, size, acked int64) ([]store.Run, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	ids := make([]int64, len(groups))
	for i, group := range groups {
		ids[i] = int64(group)
	}
	var runs []store.Run
	err := p.read(ctx, "read rows to feed", p.runsSQL(), []any{p.c.SystemID, ids, run, size, acked, p.limits.large}, func(rows pgx.Rows) error {
		var (
			group               int64
			blocked, some, more bool
		)
		skip := make([]any, len(rows.RawValues()))
		skip[0], skip[1], skip[2], skip[3] = &group, &blocked, &some, &more
		if err := rows.Scan(skip...); err != nil {
			return err
		}
		if len(runs) == 0 || runs[len(runs)-1].Group != uint64(group) {
			runs = append(runs, store.Run{Group: uint64(group), Blocked: blocked})
		}
		if !some {
			return nil
		}
		row, err := p.scanRow(rows, nil, nil, nil, nil)
		if err != nil {
			return &store.Refused{Err: err}
		}
		last := &runs[len(runs)-1]
		last.Rows = append(last.Rows, row)
		last.More = last.More || more
		return nil
	})
	for i := range runs {
		if run := &runs[i]; err == nil && len(run.Rows) > 0 && p.limits.isLarge(run.Rows[0].Bytes) {
			if run.Rows[0], err = p.readLarge(ctx, run.Rows[0]); run.Rows[0] == nil {
				run.Rows = nil
			}
		}
	}
	return runs, asRowError(err)
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
		return nil, &store.Refused{Row: row, Err: err, TooLarge: true}
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
	return nil, &store.Refused{Row: row, Err: p.failed(what, row.Bytes, time.Since(began), err), TooLarge: true}
}

// Sweep implements Store.
func (p *Store) Sweep(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	sql := readFence + `, d AS (SELECT $4::bigint AS exchange_or_topic, $5::bigint AS dest FROM fence WHERE NOT $6 UNION ALL (
			SELECT t.exchange_or_topic, t.dest FROM fence, cdc_relay.retry t WHERE ` + inSlot("t") + ` AND $6 ORDER BY t.exchange_or_topic, t.dest LIMIT 1))
		SELECT t.exchange_or_topic, t.dest, t.ordering_group, t.incarnation, t.commit_lsn::text, t.idx FROM fence LEFT JOIN (d CROSS JOIN LATERAL (
			SELECT t.exchange_or_topic, t.dest, t.ordering_group, t.incarnation, t.commit_lsn, t.idx FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND t.exchange_or_topic = d.exchange_or_topic AND t.dest = d.dest AND (t.incarnation, t.commit_lsn, t.idx) > ($7::bigint, $8::text::pg_lsn, $9::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $10) t) ON true
		ORDER BY t.incarnation, t.commit_lsn, t.idx`
	next = at
	args := []any{p.c.SystemID, int64(at.ExchangeOrTopic), int64(at.Dest), at == store.Cursor{}, at.Incarnation, at.Position.Commit.String(), int64(at.Position.Index), limit}
	seen := map[uint64]bool{}
	err = p.read(ctx, "sweep", sql, args, func(rows pgx.Rows) error {
		var exchangeOrTopic, dest, group, incarnation int64
		pos, err := scanPosition(rows, &exchangeOrTopic, &dest, &group, &incarnation)
		next = store.Cursor{ExchangeOrTopic: uint64(exchangeOrTopic), Dest: uint64(dest), Incarnation: incarnation, Position: pos}
		if !seen[uint64(group)] {
			seen[uint64(group)] = true
			groups = append(groups, uint64(group))
		}
		return err
	})
	return groups, next, err
}

// Skip implements Store.
func (p *Store) Skip(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	sql := readFence + ` SELECT t.exchange_or_topic, t.dest FROM fence LEFT JOIN LATERAL (SELECT t.exchange_or_topic, t.dest FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND ($6 OR (t.exchange_or_topic, t.dest) > ($4::bigint, $5::bigint)) ORDER BY t.exchange_or_topic, t.dest LIMIT 1) t ON true`
	err = p.read(ctx, "skip destination", sql, []any{p.c.SystemID, int64(at.ExchangeOrTopic), int64(at.Dest), at == store.Cursor{}}, func(rows pgx.Rows) error {
		var exchangeOrTopic, dest int64
		ok = true
		err := rows.Scan(&exchangeOrTopic, &dest)
		next = store.Cursor{ExchangeOrTopic: uint64(exchangeOrTopic), Dest: uint64(dest)}
		return err
	})
	return next, ok, err
}

// Due implements Store.
func (p *Store) Due(ctx context.Context, limit int) (groups []uint64, next time.Duration, err error) {
	sql := readFence + ` SELECT t.ordering_group, extract(epoch FROM t.next_attempt - now())::float8 FROM fence LEFT JOIN LATERAL (
			SELECT t.ordering_group, t.next_attempt FROM cdc_relay.retry t WHERE ` + inSlot("t") + ` AND t.next_attempt IS NOT NULL AND NOT ` + p.blocked("t") + `
			ORDER BY t.next_attempt LIMIT $4) t ON true ORDER BY t.next_attempt`
	err = p.read(ctx, "read due ordering groups", sql, []any{p.c.SystemID, limit + 1}, func(rows pgx.Rows) error {
		var (
			group int64
			in    float64
		)
		err := rows.Scan(&group, &in)
		switch {
		case next > 0: // known
		case in > 0 || len(groups) == limit:
			next = max(seconds(in), 1)
		case !slices.Contains(groups, uint64(group)):
			groups = append(groups, uint64(group))
		}
		return err
	})
	return groups, next, err
}
