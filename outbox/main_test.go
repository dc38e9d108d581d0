package outbox_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/outbox"
)

func TestMain(m *testing.M) { servers.Main(m, servers.ExampleDatabase, exampleTables) }

// exampleTables creates what the examples write to.
func exampleTables(ctx context.Context) (undo func(context.Context) error, err error) {
	err = pgserver.OnConn(ctx, os.Getenv("DATABASE_URL"), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, outbox.Schema()+"CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL); CREATE SCHEMA shop")
		return err
	})
	return func(context.Context) error { return nil }, err
}
