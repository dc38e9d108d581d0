package outbox_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// TestMain runs the tests again with what the examples connect to. It is prepared by a program of
// the repository's main module, which this one does not import.
func TestMain(m *testing.M) {
	if os.Getenv("CDC_RELAY_TEST_BESIDE") != "" {
		if err := run(context.Background(), os.Getenv("DATABASE_URL"), exampleTables); err != nil {
			fmt.Fprintln(os.Stderr, "make the tables of the examples:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	beside := exec.Command("go", append([]string{"run", "github.com/cdc-relay/cdc-relay/internal/devenv/beside", "-database"}, os.Args...)...)
	beside.Stdout, beside.Stderr = os.Stdout, os.Stderr
	if err := beside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests beside servers:", err)
		os.Exit(1)
	}
}

// exampleTables are what the examples write to.
var exampleTables = outbox.Schema() + "CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL); CREATE SCHEMA shop"

// schema makes a schema for a test, and returns the address of the database with it.
func schema(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(os.Getenv("DATABASE_URL"))
	must(t, err)
	name := "t" + strings.ToLower(rand.Text()[:12])
	must(t, run(t.Context(), u.String(), "CREATE SCHEMA "+name))
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String()
}

func run(ctx context.Context, address, sql string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
