// The outbox table of tests, and the rows that were committed in it.

package load

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// OutboxTable is the SQL of the outbox table, the same that "init --outbox-table" runs.
const OutboxTable = `CREATE TABLE outbox (
	id uuid PRIMARY KEY,
	aggregatetype text NOT NULL,
	aggregateid text NOT NULL,
	type text NOT NULL,
	payload jsonb,
	headers jsonb,
	traceparent text,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	tx xid8 DEFAULT pg_current_xact_id()
);
CREATE INDEX outbox_tx_idx ON outbox (tx);
CREATE FUNCTION cdc_relay_outbox_set_tx() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.tx := pg_catalog.pg_current_xact_id(); RETURN NEW; END $$;
CREATE TRIGGER zz_cdc_relay_tx BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW.tx IS DISTINCT FROM pg_current_xact_id()) EXECUTE FUNCTION cdc_relay_outbox_set_tx();
ALTER TABLE outbox ENABLE ALWAYS TRIGGER zz_cdc_relay_tx`

// CreateOutbox creates the outbox table.
func CreateOutbox(ctx context.Context, dbURL string) error {
	return pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, OutboxTable); err != nil {
			return fmt.Errorf("create outbox table: %w", err)
		}
		return nil
	})
}

// RouteOutbox adds two columns to the table, for templates that route by them
// ("{column:destination}", "{column:routing_key}"); rows that are written without them go to the
// destination with the routing key order.placed.
func RouteOutbox(ctx context.Context, dbURL, destination string) error {
	return pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf(`ALTER TABLE outbox ADD COLUMN destination text DEFAULT '%s', ADD COLUMN routing_key text DEFAULT 'order.placed'`, destination))
		if err != nil {
			return fmt.Errorf("add columns to outbox table: %w", err)
		}
		return nil
	})
}

// ReadCommitted reads the rows that a Workload has committed from the database, in no order.
func ReadCommitted(ctx context.Context, dbURL string) ([]checker.Row, error) {
	var rows []checker.Row
	err := pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		exchangeOrTopic := "''"
		var routed bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('outbox') AND attname = 'destination')`).Scan(&routed)
		if err != nil {
			return fmt.Errorf("read outbox: %w", err)
		}
		if routed {
			exchangeOrTopic = "coalesce(destination, '')"
		}
		found, err := conn.Query(ctx, "SELECT coalesce(id::text, ''), aggregatetype, aggregateid, (payload->>'seq')::bigint, "+exchangeOrTopic+" FROM outbox")
		if err != nil {
			return fmt.Errorf("read outbox: %w", err)
		}
		names := checker.Interned{}
		rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (r checker.Row, err error) {
			err = row.Scan(&r.ID, &r.Aggregate, &r.Key, &r.Seq, &r.ExchangeOrTopic)
			r.Aggregate, r.Key, r.ExchangeOrTopic = names.Of(r.Aggregate), names.Of(r.Key), names.Of(r.ExchangeOrTopic)
			return r, err
		})
		if err != nil {
			return fmt.Errorf("read outbox: %w", err)
		}
		return nil
	})
	return rows, err
}
