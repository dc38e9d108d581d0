// Package stand has what both sides of test/debezium/cases need: a database with the tables of a
// group, a destination, and what has arrived there.
package stand

import (
	"context"
	"fmt"
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
