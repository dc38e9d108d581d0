// The check for a slot of another relay that reads the same tables and that nobody holds: with a
// renamed source.slot, what waits in the old one would be forgotten.

package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// refuseAbandoned checks, before a new slot is created, for slots of other relays that read the
// same tables and are not active: source.slot may have been renamed, and then nobody reads what
// waits in the old slot, or in the retry table under its name. The tables may not show it: an
// application may delete its rows at once.
func refuseAbandoned(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var name string
	var behind *int64
	var waiting int64
	err := pool.QueryRow(ctx, `SELECT s.slot, pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn)::bigint,
			(SELECT count(*) FROM cdc_relay.retry w WHERE w.slot = s.slot)
		FROM cdc_relay.slots s LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot AND r.database = current_database()
		WHERE s.slot <> $1 AND s.state IN ('ready', 'adopt') AND s.leader <> '' AND r.active_pid IS NULL AND s.sends->'tables' ?| $2::text[]
			AND (r.slot_name IS NOT NULL OR EXISTS (SELECT FROM cdc_relay.retry w WHERE w.slot = s.slot))
		ORDER BY s.changed_at DESC LIMIT 1`, c.Slot, c.QuotedTables()).Scan(&name, &behind, &waiting)
	if source.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cdc_relay.slots: %w", err)
	}
	what := fmt.Sprintf("slot %q of a relay reads the same tables, and nobody holds it", name)
	if behind != nil {
		what += fmt.Sprintf("; it is %s of WAL behind", source.BytesText(uint64(max(*behind, 0))))
	}
	what += fmt.Sprintf("; %d events wait in the retry table under its name", waiting)
	if c.NoBackfill {
		c.Log.Warn("creating a new slot although nobody reads the old one", zap.String("slot", c.Slot), zap.String("why", what))
		return nil
	}
	return &event.Stop{
		Code: event.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("%s. The new slot %q would send only what is committed from now on", what, c.Slot),
		Fix:  fmt.Sprintf("if source.slot was renamed, set it back to %s; if that slot belongs to another relay, start that one first; if nobody needs it, run `cdc-relay teardown --yes` with its name; or create the new slot with `cdc-relay init --no-backfill`", name),
	}
}
