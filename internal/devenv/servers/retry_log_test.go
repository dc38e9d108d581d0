package servers

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// retryTableTables are as much of the relay's tables as the checker reads.
const retryTableTables = `CREATE SCHEMA IF NOT EXISTS cdc_relay;
	CREATE TABLE cdc_relay.retry (slot text, system_id text, id bytea, commit_lsn pg_lsn, idx bigint, n bigint);
	CREATE TABLE cdc_relay.dead_letter (slot text, system_id text, id bytea, commit_lsn pg_lsn, idx bigint, n bigint, state text)`

// The log begins with the tables, records from when to when each row was committed, and needs
// no right of the role that writes; the tables have what is left.
func TestRetryTableIsLogged(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	db := SharedPostgres(t).Database(t)
	conn, err := pgx.Connect(ctx, db)
	await.Must(t, err)
	defer conn.Close(ctx)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(ctx, sql)
		await.Must(t, err)
	}
	snapshot := func() *checker.Snapshot {
		t.Helper()
		s, err := consumers.ReadSnapshot(ctx, conn)
		await.Must(t, err)
		return s
	}
	if rows, err := checker.ReadRetryTable(ctx, db, "s"); err != nil || len(rows) > 0 {
		t.Fatalf("without tables: %v, %v", rows, err)
	}
	if stays, err := checker.ReadStays(ctx, db, "s"); err != nil || len(stays) > 0 {
		t.Fatalf("without a log: %v, %v", stays, err)
	}
	await.Must(t, checker.LogRetryTable(ctx, db))
	await.Must(t, checker.LogRetryTable(ctx, db)) // again
	exec(retryTableTables)

	before := snapshot()
	system := "(SELECT system_identifier::text FROM pg_control_system())"
	exec(`INSERT INTO cdc_relay.retry VALUES ('s', ` + system + `, 'one', '0/A', 0, 1), ('s', ` + system + `, 'two', '0/A', 1, 2),
		('other', ` + system + `, 'not ours', '0/A', 0, 3), ('s', 'of a copy', 'nor this', '0/A', 0, 4)`)
	both := snapshot()
	func() { // what is not committed is not there
		other, err := pgx.Connect(ctx, db)
		await.Must(t, err)
		defer other.Close(context.WithoutCancel(ctx))
		_, err = other.Exec(ctx, `BEGIN; INSERT INTO cdc_relay.retry VALUES ('s', `+system+`, 'never', '0/B', 0, 5)`)
		await.Must(t, err)
		var own uint64
		await.Must(t, other.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint`).Scan(&own))
		if between := snapshot(); between.Sees(own) {
			t.Errorf("the snapshot %s sees transaction %d, which runs", between, own)
		}
		_, err = other.Exec(ctx, `ROLLBACK`)
		await.Must(t, err)
	}()
	exec(`WITH dead AS (DELETE FROM cdc_relay.retry WHERE id = 'two' RETURNING *) INSERT INTO cdc_relay.dead_letter SELECT *, 'open' FROM dead`)
	moved := snapshot()
	exec(`DELETE FROM cdc_relay.retry WHERE id = 'one'`)
	exec(`UPDATE cdc_relay.dead_letter SET state = 'purged', id = NULL`)
	after := snapshot()

	stays, err := checker.ReadStays(ctx, db, "s")
	await.Must(t, err)
	if len(stays) != 3 {
		t.Fatalf("the log has %+v, want one, two, and two as a dead letter", stays)
	}
	there := func(s *checker.Snapshot) (all []string) {
		for i := range stays {
			if s.Has(&stays[i]) {
				all = append(all, stays[i].ID)
			}
		}
		return all
	}
	for _, want := range []struct {
		at *checker.Snapshot
		is []string
	}{{before, nil}, {both, []string{"one", "two"}}, {moved, []string{"one", "two"}}, {after, []string{"two"}}} {
		if got := there(want.at); !slices.Equal(got, want.is) {
			t.Errorf("at %s there were %v, want %v", want.at, got, want.is)
		}
	}
	rows, err := checker.ReadRetryTable(ctx, db, "s")
	await.Must(t, err)
	if want := (checker.RetryRow{ID: "", Position: event.Position{Commit: pglogrepl.LSN(10), Index: 1}, State: checker.Purged}); len(rows) != 1 || rows[0] != want {
		t.Errorf("the tables have %+v, want %+v", rows, want)
	}
}
