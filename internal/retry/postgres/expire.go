// Expire purges by age.

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// slotSeen is what pg_replication_slots showed of our slot at one time.
//
// A purged row must stay while the slot may send its event again. A crash of PostgreSQL takes the
// slot back to its last saved state. A server may run for hours without saving the slot when only
// confirmed_flush_lsn moves. But restart_lsn never moves alone: the walsender sets it together with
// a confirmed_flush_lsn at or above it, and saves the slot before it takes the next report
// (LogicalConfirmReceivedLocation). The view shows both before they are saved. So the rule is: if
// the same walsender has moved confirmed_flush_lsn since we read the view, the restart_lsn that we
// read is saved. A transaction whose commit record is below the saved confirmed_flush_lsn is not
// sent again. So a transaction below that restart_lsn is not sent again either.
type slotSeen struct {
	pid            int32
	restart, flush pglogrepl.LSN
}

// expireSQL empties old dead letters, and removes emptied rows and old requests. Positions of
// former incarnations do not come again, whatever the slot has saved. A row with a digest stays:
// retention takes the digest away once the outbox does not have its row any more.
var expireSQL = writeFence + `, slot AS MATERIALIZED (SELECT coalesce(s.active_pid, 0) AS pid, coalesce(s.restart_lsn, '0/0') AS restart, coalesce(s.confirmed_flush_lsn, '0/0') AS flush
			FROM fence, pg_replication_slots s WHERE s.slot_name = $1::text),
		removed AS (DELETE FROM cdc_relay.dead_letter t USING (SELECT t.n FROM fence LEFT JOIN slot s ON true, cdc_relay.dead_letter t WHERE ` + inSlot("t") + ` AND t.state = 'purged' AND t.digest IS NULL
			AND (t.incarnation < $6 OR t.incarnation = $6 AND s.pid = $7 AND s.pid <> 0 AND s.flush > $9::text::pg_lsn AND t.commit_lsn < $8::text::pg_lsn)
			LIMIT $5) o WHERE t.n = o.n RETURNING t.n),
		emptied AS (UPDATE cdc_relay.dead_letter t SET ` + assign(bare) + `digest = CASE t.state WHEN 'discarded' THEN ` + rowDigest + ` END, state = 'purged' FROM (SELECT t.n FROM fence, cdc_relay.dead_letter t
			WHERE ` + inSlot("t") + ` AND t.state IN ('replayed', 'discarded') AND t.closed_at < now() - make_interval(secs => $4::float8)
			ORDER BY t.closed_at LIMIT $5) o WHERE t.n = o.n RETURNING t.n),
		forgotten AS (DELETE FROM cdc_relay.request q USING (SELECT q.id FROM fence, cdc_relay.request q WHERE q.slot = $1 AND q.system_id = $3
			AND q.state <> 'waiting' AND q.done_at < now() - make_interval(secs => $4::float8) ORDER BY q.done_at LIMIT $5) o WHERE q.id = o.id RETURNING q.id),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
			SELECT $1, $3, '` + store.ByAge + `', 'purge', 0, $10, e.n || ' dead letters' FROM (SELECT count(*) AS n FROM emptied) e WHERE e.n > 0)
		SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM emptied) + (SELECT count(*) FROM forgotten),
			slot.pid, slot.restart::text, slot.flush::text FROM fence LEFT JOIN slot ON true`

// Expire implements Store.
func (p *Store) Expire(ctx context.Context, keep time.Duration, limit int) (changed int, err error) {
	p.mu.Lock()
	seen := p.seen
	p.mu.Unlock()
	age := keep.Seconds()
	if keep <= 0 {
		age = forever.Seconds()
	}
	var (
		pid            *int32
		restart, flush *string
	)
	args := func(storable) []any {
		return []any{p.c.SystemID, age, limit, p.c.Incarnation, seen.pid, seen.restart.String(), seen.flush.String(), store.WhyByAge(keep)}
	}
	err = p.change(ctx, "expire dead letters", expireSQL, args, func(rows pgx.Rows) error {
		return rows.Scan(&changed, &pid, &restart, &flush)
	})
	if err != nil || pid == nil {
		return changed, err
	}
	now := slotSeen{pid: *pid}
	if now.restart, err = pglogrepl.ParseLSN(*restart); err != nil {
		return changed, err
	}
	if now.flush, err = pglogrepl.ParseLSN(*flush); err != nil {
		return changed, err
	}
	p.mu.Lock()
	p.seen = now
	p.mu.Unlock()
	return changed, nil
}

// forever is longer than any dead letter is kept.
const forever = 200 * 365 * 24 * time.Hour
