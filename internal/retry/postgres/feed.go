// Runs, Sweep, Skip and Due: what may be fed.

package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// runsSQL picks, by positions and sizes alone, the rows of each chain that go, and then reads them.
// The cut at size goes by each row's place in its chain (i), so that no chain has a gap and every
// head comes before any second row.
func (p *Store) runsSQL() string {
	return fence + `, c AS MATERIALIZED (SELECT c.chain, c.o, ` + p.blocked("c") + ` AS blocked FROM fence, unnest($4::bigint[]) WITH ORDINALITY AS c(chain, o)),
		first AS MATERIALIZED (SELECT c.o, t.*, row_number() OVER w AS i, bool_or(t.n > $7) OVER w AS fresh
			FROM c CROSS JOIN LATERAL (SELECT t.n, t.bytes, t.incarnation, t.commit_lsn, t.idx FROM cdc_relay.retry t
				WHERE ` + inSlot("t") + ` AND t.chain = c.chain AND NOT c.blocked ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $5) t
			WINDOW w AS (PARTITION BY c.o ORDER BY t.incarnation, t.commit_lsn, t.idx)),
		picked AS MATERIALIZED (SELECT f.n FROM (SELECT f.n, sum(f.bytes) OVER (ORDER BY f.i, f.o) - f.bytes AS before FROM first f WHERE NOT f.fresh) f
			WHERE f.before = 0 OR f.before < $6)
		SELECT c.chain, c.blocked, t.n IS NOT NULL, ` + rowOf("t", false, "true") + `
		FROM fence LEFT JOIN (c LEFT JOIN (picked JOIN cdc_relay.retry t USING (n)) ON t.chain = c.chain) ON c.blocked OR EXISTS (SELECT FROM first f WHERE f.o = c.o)
		ORDER BY c.o, t.incarnation, t.commit_lsn, t.idx`
}

// blocked is whether an open letter holds the chain of alias. OFFSET 0: it is looked up for each.
func (p *Store) blocked(alias string) string {
	if !p.c.Block {
		return `false`
	}
	return `EXISTS (SELECT FROM cdc_relay.dead_letter d WHERE ` + inSlot("d") + ` AND d.chain = ` + alias + `.chain AND d.ordered AND d.state = 'open' OFFSET 0)`
}

// Runs implements Store.
func (p *Store) Runs(ctx context.Context, chains []uint64, run int, size, acked int64) ([]store.Run, error) {
	if len(chains) == 0 {
		return nil, nil
	}
	ids := make([]int64, len(chains))
	for i, chain := range chains {
		ids[i] = int64(chain)
	}
	var runs []store.Run
	err := p.read(ctx, "read rows to feed", p.runsSQL(), []any{p.c.SystemID, ids, run, size, acked}, func(rows pgx.Rows) error {
		var (
			chain         int64
			blocked, some bool
		)
		skip := make([]any, len(rows.RawValues()))
		skip[0], skip[1], skip[2] = &chain, &blocked, &some
		if err := rows.Scan(skip...); err != nil {
			return err
		}
		if len(runs) == 0 || runs[len(runs)-1].Chain != uint64(chain) {
			runs = append(runs, store.Run{Chain: uint64(chain), Blocked: blocked})
		}
		if !some {
			return nil
		}
		row, err := p.scanRow(rows, nil, nil, nil)
		if err != nil {
			return &store.Refused{Err: err}
		}
		last := &runs[len(runs)-1]
		last.Rows = append(last.Rows, row)
		return nil
	})
	return runs, aboutRow(err)
}

// Sweep implements Store.
func (p *Store) Sweep(ctx context.Context, at store.Cursor, limit int) (chains []uint64, next store.Cursor, err error) {
	sql := fence + `, d AS (SELECT $4::bigint AS unit, $5::bigint AS dest FROM fence WHERE NOT $6 UNION ALL (
			SELECT t.unit, t.dest FROM fence, cdc_relay.retry t WHERE ` + inSlot("t") + ` AND $6 ORDER BY t.unit, t.dest LIMIT 1))
		SELECT t.unit, t.dest, t.chain, t.incarnation, t.commit_lsn::text, t.idx FROM fence LEFT JOIN (d CROSS JOIN LATERAL (
			SELECT t.unit, t.dest, t.chain, t.incarnation, t.commit_lsn, t.idx FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND t.unit = d.unit AND t.dest = d.dest AND (t.incarnation, t.commit_lsn, t.idx) > ($7::bigint, $8::text::pg_lsn, $9::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $10) t) ON true
		ORDER BY t.incarnation, t.commit_lsn, t.idx`
	next = at
	args := []any{p.c.SystemID, int64(at.Unit), int64(at.Dest), at == store.Cursor{}, at.Incarnation, at.Position.Commit.String(), int64(at.Position.Index), limit}
	seen := map[uint64]bool{}
	err = p.read(ctx, "sweep", sql, args, func(rows pgx.Rows) error {
		var unit, dest, chain, incarnation int64
		pos, err := scanPosition(rows, &unit, &dest, &chain, &incarnation)
		next = store.Cursor{Unit: uint64(unit), Dest: uint64(dest), Incarnation: incarnation, Position: pos}
		if !seen[uint64(chain)] {
			seen[uint64(chain)] = true
			chains = append(chains, uint64(chain))
		}
		return err
	})
	return chains, next, err
}

// Skip implements Store.
func (p *Store) Skip(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	sql := fence + ` SELECT t.unit, t.dest FROM fence LEFT JOIN LATERAL (SELECT t.unit, t.dest FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND ($6 OR (t.unit, t.dest) > ($4::bigint, $5::bigint)) ORDER BY t.unit, t.dest LIMIT 1) t ON true`
	err = p.read(ctx, "skip destination", sql, []any{p.c.SystemID, int64(at.Unit), int64(at.Dest), at == store.Cursor{}}, func(rows pgx.Rows) error {
		var unit, dest int64
		ok = true
		err := rows.Scan(&unit, &dest)
		next = store.Cursor{Unit: uint64(unit), Dest: uint64(dest)}
		return err
	})
	return next, ok, err
}

// Due implements Store.
func (p *Store) Due(ctx context.Context, limit int) (chains []uint64, next time.Duration, err error) {
	sql := fence + ` SELECT t.chain, extract(epoch FROM t.next_attempt - now())::float8 FROM fence LEFT JOIN LATERAL (
			SELECT t.chain, t.next_attempt FROM cdc_relay.retry t WHERE ` + inSlot("t") + ` AND t.next_attempt IS NOT NULL AND NOT ` + p.blocked("t") + `
			ORDER BY t.next_attempt LIMIT $4) t ON true ORDER BY t.next_attempt`
	err = p.read(ctx, "read due chains", sql, []any{p.c.SystemID, limit + 1}, func(rows pgx.Rows) error {
		var (
			chain int64
			in    float64
		)
		err := rows.Scan(&chain, &in)
		switch {
		case next > 0: // known
		case in > 0 || len(chains) == limit:
			next = max(seconds(in), 1)
		case !slices.Contains(chains, uint64(chain)):
			chains = append(chains, uint64(chain))
		}
		return err
	})
	return chains, next, err
}
