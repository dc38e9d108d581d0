// A log of the retry and dead-letter tables, kept in the database by triggers. What was reported
// to the slot before it was at the broker must have been in one of them, and a row that has left
// them is not seen in the end.

package checker

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// retryTableLog makes the log, and has it begin in the transaction that creates the tables. The
// functions run with the rights of who made the log, so the relay's role needs none. Each statement
// is logged in its own transaction: a row of the log is committed exactly when the row it is about
// is.
const retryTableLog = `
CREATE SCHEMA IF NOT EXISTS devenv;
CREATE TABLE IF NOT EXISTS devenv.retry_log (
	n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	slot text, system_id text, gone boolean, source text, id text, commit_lsn text, idx bigint,
	transaction xid8 DEFAULT pg_current_xact_id(), backend integer DEFAULT pg_backend_pid(), at timestamptz DEFAULT clock_timestamp(), lsn pg_lsn DEFAULT pg_current_wal_insert_lsn());

CREATE OR REPLACE FUNCTION devenv.retry_logged() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	INSERT INTO devenv.retry_log (slot, system_id, gone, source, id, commit_lsn, idx)
	SELECT slot, system_id, TG_OP = 'DELETE', TG_TABLE_NAME, id::text, commit_lsn::text, idx FROM changed;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION devenv.log_retry() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE name text;
BEGIN
	FOREACH name IN ARRAY ARRAY['retry', 'dead_letter'] LOOP
		CONTINUE WHEN to_regclass('cdc_relay.' || name) IS NULL;
		CONTINUE WHEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('cdc_relay.' || name) AND tgname = 'devenv_inserted');
		EXECUTE format('CREATE TRIGGER devenv_inserted AFTER INSERT ON cdc_relay.%I REFERENCING NEW TABLE AS changed
			FOR EACH STATEMENT EXECUTE FUNCTION devenv.retry_logged()', name);
		EXECUTE format('CREATE TRIGGER devenv_deleted AFTER DELETE ON cdc_relay.%I REFERENCING OLD TABLE AS changed
			FOR EACH STATEMENT EXECUTE FUNCTION devenv.retry_logged()', name);
	END LOOP;
END $$;

CREATE OR REPLACE FUNCTION devenv.retry_created() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	PERFORM devenv.log_retry();
END $$;

DROP EVENT TRIGGER IF EXISTS devenv_retry;
CREATE EVENT TRIGGER devenv_retry ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION devenv.retry_created();
SELECT devenv.log_retry()`

// LogRetryTable begins a log of the retry table's tables, which need not be there yet. It is called
// before the first relay starts.
func LogRetryTable(ctx context.Context, dbURL string) error {
	return pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		if _, err := conn.PgConn().Exec(ctx, retryTableLog).ReadAll(); err != nil {
			return fmt.Errorf("make log of retry table: %w", err)
		}
		return nil
	})
}

// ReadStays reads the log: every time that a row of the slot was in one of the tables. Without
// LogRetryTable there are none.
func ReadStays(ctx context.Context, dbURL, slot string) (stays []Stay, err error) {
	err = pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		var there bool
		if err := conn.QueryRow(ctx, `SELECT to_regclass('devenv.retry_log') IS NOT NULL`).Scan(&there); err != nil || !there {
			return err
		}
		rows, err := conn.Query(ctx, `SELECT gone, source, coalesce(id, ''), commit_lsn, idx, transaction::text::bigint
			FROM devenv.retry_log WHERE slot = $1 AND system_id = (SELECT system_identifier::text FROM pg_control_system()) ORDER BY n`, slot)
		if err != nil {
			return err
		}
		type place struct {
			source   string
			position event.Position
		}
		open := map[place]int{}
		var gone bool
		var source, id, commit string
		var index uint32
		var transaction uint64
		_, err = pgx.ForEachRow(rows, []any{&gone, &source, &id, &commit, &index, &transaction}, func() error {
			id, position, err := retryRowAt(id, commit, index)
			if err != nil {
				return err
			}
			at := place{source, position}
			if !gone {
				open[at] = len(stays)
				stays = append(stays, Stay{ID: id, Position: position, From: transaction})
				return nil
			}
			if i, known := open[at]; known {
				stays[i].Until = transaction
				delete(open, at)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read log of retry table: %w", err)
	}
	return stays, nil
}
