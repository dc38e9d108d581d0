// Sweep and Skip find the ordering groups to read.

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// blocked is the condition that an open dead letter blocks the ordering group of alias. OFFSET 0:
// it is looked up for each.
func (p *Store) blocked(alias string) string {
	if !p.c.Block {
		return `false`
	}
	return `EXISTS (SELECT FROM cdc_relay.dead_letter d WHERE ` + inSlot("d") + ` AND d.ordering_group = ` + alias + `.ordering_group AND d.ordered AND d.state = 'open' OFFSET 0)`
}

// Sweep implements Store.
func (p *Store) Sweep(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	sql := readFence + ` SELECT t.ordering_group, t.incarnation, t.commit_lsn, t.idx FROM fence LEFT JOIN LATERAL (
			SELECT t.ordering_group, t.incarnation, t.commit_lsn::text AS commit_lsn, t.idx FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND t.exchange_or_topic = $4::bigint AND t.dest = $5::bigint AND (t.incarnation, t.commit_lsn, t.idx) > ($6::bigint, $7::text::pg_lsn, $8::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $9) t ON true`
	next = at
	args := []any{p.c.SystemID, int64(at.ExchangeOrTopic), int64(at.Dest), at.Incarnation, at.Position.Commit.String(), int64(at.Position.Index), limit}
	seen := map[uint64]bool{}
	err = p.read(ctx, "sweep", sql, args, func(rows pgx.Rows) error {
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

// Resent implements Store.
func (p *Store) Resent(ctx context.Context, after store.ResentRow, limit int) (groups []uint64, last store.ResentRow, some bool, err error) {
	sql := readFence + ` SELECT t.ordering_group, t.resend, t.n, EXISTS (SELECT FROM cdc_relay.retry r WHERE ` + inSlot("r") + ` AND r.resend IS NOT NULL) FROM fence LEFT JOIN LATERAL (
			SELECT t.ordering_group, t.resend, t.n FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND t.resend IS NOT NULL AND (t.resend, t.n) > ($4::bigint, $5::bigint) AND (t.next_attempt IS NULL OR t.next_attempt <= now())
				AND NOT EXISTS (SELECT FROM cdc_relay.bulk b WHERE b.job = t.resend AND b.state = 'cancelled') -- they are taken back
			ORDER BY t.resend, t.n LIMIT $6) t ON true`
	last = after
	seen := map[uint64]bool{}
	err = p.read(ctx, "read rows of resends", sql, []any{p.c.SystemID, after.Job, after.N, limit}, func(rows pgx.Rows) error {
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

// Skip implements Store.
func (p *Store) Skip(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	sql := readFence + ` SELECT t.exchange_or_topic, t.dest FROM fence LEFT JOIN LATERAL (SELECT t.exchange_or_topic, t.dest FROM cdc_relay.retry t
			WHERE ` + inSlot("t") + ` AND (t.exchange_or_topic, t.dest) > ($4::bigint, $5::bigint) ORDER BY t.exchange_or_topic, t.dest LIMIT 1) t ON true`
	err = p.read(ctx, "skip destination", sql, []any{p.c.SystemID, int64(at.ExchangeOrTopic), int64(at.Dest)}, func(rows pgx.Rows) error {
		var exchangeOrTopic, dest int64
		ok = true
		err := rows.Scan(&exchangeOrTopic, &dest)
		next = store.Cursor{ExchangeOrTopic: uint64(exchangeOrTopic), Dest: uint64(dest)}
		return err
	})
	return next, ok, err
}
