// The rows that a new slot does not send, which an operator must accept: rows that are in the
// outbox already, and rows that wait in another relay's slot that nobody reads, or in the retry
// table under its name.

package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// before is what was in the tables before a slot.
type before struct {
	rows  int64  // visible in the slot's snapshot: it does not send them
	first string // the slot's snapshot: see publication.Table.First
	// some of them are not known to be sent; looked for on a server that took another one's place
	unsent bool
}

// countInSnapshot counts the rows that were visible in the slot's snapshot, and looks for unsent
// ones among them.
func countInSnapshot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, snapshot string, lookUnsent bool) (found before, err error) {
	err = tableread.Alone(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+source.QuoteText(snapshot)); err != nil {
			return err
		}
		// nested loops would go through the sent set once per row, if its size is misjudged
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL enable_nestloop = off"); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&found.first); err != nil {
			return err
		}
		for _, t := range c.Tables {
			// the pool sees what is committed now, the transaction what was when the slot was made
			if err := tableread.Lock(ctx, tx, pool, source.QuoteTable(t)); err != nil {
				return err
			}
			var rows int64
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+source.QuoteTable(t)).Scan(&rows); err != nil {
				return err
			}
			if lookUnsent && rows > 0 && !found.unsent {
				if found.unsent, err = hasUnsent(ctx, pool, tx, c, t); err != nil {
					return err
				}
			}
			if err := tableread.Check(ctx, pool, source.QuoteTable(t)); err != nil {
				return err
			}
			found.rows += rows
		}
		return nil
	})
	if refusal, refused := tableread.IsRefusal(err); refused {
		return before{}, refuseTable(refusal)
	}
	if err != nil {
		return before{}, fmt.Errorf("count rows in the outbox: %w", err)
	}
	return found, nil
}

// hasUnsent reports whether a table that tx may read has rows that are not known to be sent. Those
// from before it had the column for the transaction are left out: nothing is known of them anyway.
func hasUnsent(ctx context.Context, pool *pgxpool.Pool, tx pgx.Tx, c *source.Config, t decode.Table) (yes bool, err error) {
	d, err := sent.Describe(ctx, pool, SentTable(t))
	if err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM (`+d.UnsentSQL(source.QuoteTable(t))+`) u WHERE tx IS NOT NULL OR NOT $3)`, c.Slot, d.Family, d.Tells()).Scan(&yes)
	return yes, err
}

// SentTable is a table as package sent names it.
func SentTable(t decode.Table) sent.Table {
	return sent.Table{Schema: t.Schema, Name: t.Name, ID: t.Mapping.ID.Any, Transaction: t.Mapping.Transaction.Any}
}

// CheckReadable checks in advance the rights that countInSnapshot needs, while there is no slot yet
// that would retain WAL. Policies must not hide rows from the count: with row_security off the
// server rejects the query of a role that they apply to.
func CheckReadable(ctx context.Context, q source.Querier, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	for _, t := range c.Tables {
		var role string
		var may, policies bool
		err := q.QueryRow(ctx, `SELECT current_user, has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT'),
			row_security_active(oid) FROM pg_class WHERE oid = $1`, t.OID).Scan(&role, &may, &policies)
		if err != nil {
			return fmt.Errorf("read rights on %s: %w", t, err)
		}
		switch {
		case !may:
			return &event.Stop{
				Code: event.ExitFailure, Reason: "rights",
				What: fmt.Sprintf("role %q may not read table %s, whose rows are counted once, when the slot is created", role, t),
				Fix:  fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %[2]s", source.QuoteName(t.Schema), source.QuoteName(role), source.QuoteTable(t)),
			}
		case policies:
			return &event.Stop{
				Code: event.ExitFailure, Reason: "rights",
				What: fmt.Sprintf("row level security applies to role %q on table %s, whose rows are counted once, when the slot is created", role, t),
				Fix:  fmt.Sprintf("ALTER ROLE %s BYPASSRLS (it can be revoked once the slot exists)", source.QuoteName(role)),
			}
		}
		if err := tableread.Check(ctx, q, source.QuoteTable(t)); err != nil {
			return refuseTable(err)
		}
	}
	return nil
}

// refuseTable is the Stop for a table that must not be read, or err.
func refuseTable(err error) error {
	refusal, ok := tableread.IsRefusal(err)
	if !ok {
		return err
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "rights",
		What: fmt.Sprintf("table %s, whose rows are counted once, when the slot is created, %s", refusal.Table, refusal.Why), Fix: refusal.Fix,
	}
}

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
		c.Log.Warn("creating a new slot although nobody reads the old one", zap.String("slot", c.Slot), zap.String("reason", what))
		return nil
	}
	return &event.Stop{
		Code: event.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("%s. The new slot %q would send only what is committed from now on", what, c.Slot),
		Fix:  fmt.Sprintf("if source.slot was renamed, set it back to %s; if that slot belongs to another relay, start that one first; if nobody needs what it has not delivered, run `cdc-relay teardown --yes` with its name; or create the new slot with `cdc-relay init --no-backfill`", name),
	}
}
