// The rows that were in the outbox before the slot was created: it does not send them, so they are
// counted, and an operator has to accept that.

package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// earlierRows are the rows that were visible in the slot's snapshot and are not sent by it.
type earlierRows struct {
	rows   int64
	newest string // the id of the row that lies last in the table, for people
}

func (b earlierRows) refuse(c *source.Config) error {
	return &event.Stop{
		Code: event.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("the outbox (%s) already has %d rows, newest %s: a new slot sends only what is committed from now on",
			c.TableNames(), b.rows, b.newest),
		Fix: "run `cdc-relay init --no-backfill` to create the slot and leave these rows unsent, or empty the table",
	}
}

func countInSnapshot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, snapshot string) (earlierRows, error) {
	var b earlierRows
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+source.QuoteText(snapshot)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		for _, t := range c.Tables {
			var rows int64
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+source.QuoteTable(t)).Scan(&rows); err != nil {
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
		return b, fmt.Errorf("count rows in the outbox: %w", err)
	}
	return b, nil
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
		source.QuoteName(column), source.QuoteTable(t))).Scan(&id)
	return id, err
}
