package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// leftBehind are the rows that were visible in the slot's snapshot.
type leftBehind struct {
	rows   int64
	newest string // the id of the row that lies last in the table, for people
}

func (b leftBehind) refuse(c *Config) error {
	return &outbox.Stop{
		Code: outbox.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("the outbox (%s) already has %d rows, newest %s: a new slot sends only what is committed from now on",
			namedIn(c.Tables), b.rows, b.newest),
		Mend: "run `cdc-relay init --no-backfill` to create the slot and leave these rows unsent, or empty the table",
	}
}

func countInSnapshot(ctx context.Context, pool *pgxpool.Pool, c *Config, snapshot string) (leftBehind, error) {
	var b leftBehind
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+quoteText(snapshot)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		for _, t := range c.Tables {
			var rows int64
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+quoteTable(t)).Scan(&rows); err != nil {
				return err
			}
			if rows == 0 {
				continue
			}
			b.rows += rows
			var err error
			if b.newest, err = newestID(ctx, tx, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("look for rows in the outbox: %w", err)
	}
	return b, nil
}

// refuseAbandoned asks, before a new slot is made, about slots of other relays that read the same tables and that nobody holds:
// source.slot may have been renamed, and what waits in the old slot, or in the retry table under its name, is read by nobody then.
// The tables need not show it: an application may delete its rows at once.
func refuseAbandoned(ctx context.Context, pool *pgxpool.Pool, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var name string
	var behind *int64
	var waiting int64
	err := pool.QueryRow(ctx, `SELECT s.slot, pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn)::bigint,
			(SELECT count(*) FROM cdc_relay.retry w WHERE w.slot = s.slot)
		FROM cdc_relay.slots s LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot AND r.database = current_database()
		WHERE s.slot <> $1 AND s.state IN ('ready', 'adopt') AND s.leader <> '' AND r.active_pid IS NULL AND s.sends->'tables' ?| $2::text[]
			AND (r.slot_name IS NOT NULL OR EXISTS (SELECT FROM cdc_relay.retry w WHERE w.slot = s.slot))
		ORDER BY s.changed_at DESC LIMIT 1`, c.Slot, c.quotedTables()).Scan(&name, &behind, &waiting)
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cdc_relay.slots: %w", err)
	}
	what := fmt.Sprintf("slot %q of a relay reads the same tables, and nobody holds it", name)
	if behind != nil {
		what += fmt.Sprintf("; it is %s of WAL behind", bytesText(uint64(max(*behind, 0))))
	}
	what += fmt.Sprintf("; %d events wait in the retry table under its name", waiting)
	if c.NoBackfill {
		c.Log.Warn("a new slot is made beside one that nobody reads", zap.String("slot", c.Slot), zap.String("why", what))
		return nil
	}
	return &outbox.Stop{
		Code: outbox.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("%s. The new slot %q would send only what is committed from now on", what, c.Slot),
		Mend: fmt.Sprintf("if source.slot was renamed: name %s again; if that is another relay: start it first, then this one; if nobody needs it: `cdc-relay teardown --yes` with its name; or create the new slot with `cdc-relay init --no-backfill`", name),
	}
}

// checkReadable asks beforehand for what countInSnapshot needs, while there is no slot yet that would keep WAL. Policies
// must not hide rows from the question: with row_security off the server refuses it to a role that they apply to.
func checkReadable(ctx context.Context, q querier, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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
			return &outbox.Stop{
				Code: outbox.ExitFailure, Reason: "rights",
				What: fmt.Sprintf("role %q may not read table %s, whose rows are counted once, when the slot is created", role, t),
				Mend: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %[2]s", quoteName(t.Schema), quoteName(role), quoteTable(t)),
			}
		case policies:
			return &outbox.Stop{
				Code: outbox.ExitFailure, Reason: "rights",
				What: fmt.Sprintf("row level security applies to role %q on table %s, whose rows are counted once, when the slot is created", role, t),
				Mend: fmt.Sprintf("ALTER ROLE %s BYPASSRLS (it may be taken back when the slot is there)", quoteName(role)),
			}
		}
	}
	return nil
}

// newestID is the id of the row that lies last in t, which has rows: about the newest.
func newestID(ctx context.Context, tx pgx.Tx, t decode.Table) (string, error) {
	var column string
	err := tx.QueryRow(ctx, `SELECT attname::text FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
		AND attname = ANY ($2) ORDER BY array_position($2::text[], attname::text) LIMIT 1`, t.OID, t.Mapping.ID.Any).Scan(&column)
	if err != nil {
		return "", fmt.Errorf("find the id of %s.%s: %w", t.Schema, t.Name, err)
	}
	var id string
	err = tx.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(left(t.%s::text, 100), 'NULL') FROM %s t ORDER BY t.ctid DESC LIMIT 1",
		quoteName(column), quoteTable(t))).Scan(&id)
	return id, err
}
