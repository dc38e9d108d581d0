// Package stand has what both sides of test/debezium/cases need: a database with the tables of a
// group, a destination, and what has arrived there.
package stand

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// Bound is how long anything may take on a loaded machine.
const Bound = 5 * time.Minute

// Partitions is how many each topic has.
const Partitions = 6

// Destination is where records arrive.
type Destination interface {
	// Records returns what has arrived once the last of it has: the record whose id ends is there.
	// It gives up when failed says so.
	Records(ctx context.Context, ends string, failed func() error) ([]cases.Record, error)
	// Now returns what has arrived.
	Now(ctx context.Context) ([]cases.Record, error)
}

// Database makes a database with the tables of a group.
func Database(t testing.TB, g *cases.Group) (url string, conn *pgx.Conn) {
	t.Helper()
	ctx := await.Context(t)
	url = servers.SharedPostgres(t).Database(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	Exec(t, conn, g.SetupSQL())
	return url, conn
}

// Databases are databases that groups have one after the other: to create and to drop one takes
// three checkpoints of the server, which is more than all else that a group asks of it. They are
// dropped at the end of T.
type Databases struct {
	T    testing.TB
	mu   sync.Mutex
	free []string // addresses
}

// Of is a database with the tables of a group and nothing else, until the end of t.
func (d *Databases) Of(t testing.TB, g *cases.Group) (url string, conn *pgx.Conn) {
	t.Helper()
	d.mu.Lock()
	if n := len(d.free) - 1; n >= 0 {
		url, d.free = d.free[n], d.free[:n]
	}
	d.mu.Unlock()
	if url == "" {
		url = servers.SharedPostgres(t).Database(d.T)
	}
	conn, err := pgx.Connect(await.Context(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer conn.Close(context.Background())
		empty(t, conn)
		d.mu.Lock()
		d.free = append(d.free, url)
		d.mu.Unlock()
	})
	Exec(t, conn, g.SetupSQL())
	return url, conn
}

// empty drops all that a group has made in its database, when nobody uses it any more. The relays'
// own schema stays, in which each slot has its own rows: to make it is much of a relay's start.
func empty(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	Exec(t, conn, []string{
		`DO $$ BEGIN
			WHILE EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()) LOOP
				PERFORM pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
				PERFORM pg_stat_clear_snapshot();
			END LOOP; END $$`,
		`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`,
		`DO $$ DECLARE sql text; BEGIN
			FOR sql IN SELECT format('DROP PUBLICATION %I', pubname) FROM pg_publication LOOP EXECUTE sql; END LOOP; END $$`,
	})
	DropTables(t, conn)
}

// DropTables drops all that a group has made in its database but publications.
func DropTables(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	Exec(t, conn, []string{`DO $$ DECLARE sql text; BEGIN
		FOR sql IN SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$|cdc_relay$)' LOOP
			EXECUTE sql;
		END LOOP;
		CREATE SCHEMA public; END $$`})
}

// Exec runs statements, each a transaction of its own.
func Exec(t testing.TB, conn *pgx.Conn, statements []string) {
	t.Helper()
	ctx := await.Context(t)
	for _, sql := range statements {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatalf("%.300s: %v", sql, err)
		}
	}
}

// Await calls look until it has seen the end, or failed says that it will not come. It gives up as
// await.Until does.
func Await(ctx context.Context, failed func() error, look func() (ended bool, err error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range await.Polls {
		ended, err := look()
		if ended || err != nil {
			return err
		}
		if err := failed(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
	return fmt.Errorf("wait for the end: it has not come after %d polls", await.Polls)
}
