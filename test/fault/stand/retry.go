// Reading and locking the retry table and the dead letters.

package stand

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// RowsIn is how many rows of a state there are.
func (s *Stand) RowsIn(state checker.RetryRowState) (n int) {
	s.T.Helper()
	return len(s.RetryRowIDs(state))
}

// RetryRowIDs are the ids of the rows of a state, as checker.ReadRetryTable has them.
func (s *Stand) RetryRowIDs(state checker.RetryRowState) (ids []string) {
	s.T.Helper()
	s.onDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		var there bool
		err := conn.QueryRow(ctx, `SELECT to_regclass('cdc_relay.retry') IS NOT NULL AND to_regclass('cdc_relay.dead_letter') IS NOT NULL`).Scan(&there)
		if err != nil || !there {
			return err
		}
		const ours = ` WHERE slot = $1 AND system_id = (SELECT system_identifier::text FROM pg_control_system())`
		sql, args := `SELECT coalesce(id, '') FROM cdc_relay.retry`+ours, []any{s.Slot}
		if state != checker.Deferred {
			sql, args = `SELECT coalesce(id, '') FROM cdc_relay.dead_letter`+ours+` AND state = $2`, append(args, string(state))
		}
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var id []byte
			err := row.Scan(&id)
			return string(id), err
		})
		return err
	})
	return ids
}

// AwaitRows waits until there are at least so many rows of a state.
func (s *Stand) AwaitRows(state checker.RetryRowState, n int) {
	s.T.Helper()
	s.Until(fmt.Sprintf("%d events to be %s", n, state), func() bool { return s.RowsIn(state) >= n })
}

// AwaitEmpty waits until nothing is deferred.
func (s *Stand) AwaitEmpty() {
	s.T.Helper()
	s.Until("nothing to be deferred", func() bool { return s.RowsIn(checker.Deferred) == 0 })
}

// RetryTableRows is every row of the relay's tables as it is, with the transaction that wrote it,
// but for what tells of the slot: two calls that give the same say that nothing was written between
// them.
func (s *Stand) RetryTableRows() (all []string) {
	s.T.Helper()
	s.onDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT relname::text FROM pg_class WHERE relnamespace = 'cdc_relay'::regnamespace AND relkind = 'r'
			AND relname NOT IN ('slots', 'progress', 'sent') ORDER BY 1`)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, table := range tables {
			if err != nil {
				break
			}
			if rows, err = conn.Query(ctx, fmt.Sprintf(`SELECT format('%s %%s %%s %%s', ctid, xmin, to_jsonb(r)) FROM cdc_relay.%[1]s r ORDER BY 1`, table)); err != nil {
				break
			}
			var found []string
			found, err = pgx.CollectRows(rows, pgx.RowTo[string])
			all = append(all, found...)
		}
		return err
	})
	return all
}

// Quiet waits until nothing was written to the relay's tables for a while, and returns
// RetryTableRows.
func (s *Stand) Quiet() (rows []string) {
	s.T.Helper()
	const long = 2 * time.Second
	since := time.Now()
	s.Until("nothing to be written to the retry table", func() bool {
		now := s.RetryTableRows()
		if strings.Join(now, "\n") != strings.Join(rows, "\n") || rows == nil {
			rows, since = now, time.Now()
		}
		return time.Since(since) > long
	})
	return rows
}

// Stop is a place inside the relay's statements where a backend stands still until it is let go.
type Stop struct {
	Name string
	hold string // statement of a session; it holds until the session ends
}

// The two stops of a statement that writes to a table: before it has looked at the epoch, and when
// it has, with the row of the slot locked, and is about to write. Table is retry or dead_letter.
func beforeFence(table string) Stop {
	return Stop{"before the fence of " + table, "BEGIN; LOCK TABLE cdc_relay." + table + " IN SHARE MODE"}
}

func behindFence(table string) Stop {
	return Stop{"behind the fence of " + table, fmt.Sprintf("SELECT pg_advisory_lock(hashtext('%s'))", table)}
}

const stops = `
CREATE OR REPLACE FUNCTION devenv.stop_inside() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(hashtext(TG_TABLE_NAME));
	RETURN coalesce(NEW, OLD);
END $$;
CREATE OR REPLACE TRIGGER devenv_stop BEFORE INSERT OR UPDATE OR DELETE ON cdc_relay.retry FOR EACH ROW EXECUTE FUNCTION devenv.stop_inside();
CREATE OR REPLACE TRIGGER devenv_stop BEFORE INSERT OR UPDATE OR DELETE ON cdc_relay.dead_letter FOR EACH ROW EXECUTE FUNCTION devenv.stop_inside();`

// MakeStops makes Hold possible. The tables must be there, and WatchFlush called.
func (s *Stand) MakeStops() {
	s.T.Helper()
	s.SQL(stops)
}

// Hold keeps statements at a stop until release is called, or the test ends.
func (s *Stand) Hold(stop Stop) (release func()) {
	s.T.Helper()
	conn, err := pgx.Connect(s.Context(), s.DB)
	s.Must(err)
	_, err = conn.PgConn().Exec(s.Context(), stop.hold).ReadAll()
	s.Must(err)
	release = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // a second time it does nothing
	}
	s.T.Cleanup(release)
	return release
}

// waiting is how many backends of relays wait for a lock.
func (s *Stand) waiting() (n int) {
	s.T.Helper()
	s.Query([]any{&n}, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND wait_event_type = 'Lock'`)
	return n
}

// Gone waits until no backend works for a relay any more: what a dead one has asked for is done, or
// never will be.
func (s *Stand) Gone() {
	s.T.Helper()
	s.Until("the backends of the dead relay to end", func() (gone bool) {
		s.Query([]any{&gone}, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend' AND state = 'active')`)
		return gone
	})
}
