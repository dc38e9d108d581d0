package outboxtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// ordersSchema is a table whose transactions write events.
const ordersSchema = "CREATE TABLE orders (id text PRIMARY KEY, total numeric NOT NULL);"

// TestMain runs the tests again with a database. It is prepared by a program of the repository's
// main module, which this one does not import.
func TestMain(m *testing.M) {
	if os.Getenv("CDC_RELAY_TEST_BESIDE") != "" {
		if err := migrate(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "make the tables:", err)
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

func migrate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, outbox.Schema()+ordersSchema+`
		CREATE TABLE "Events" ("Id" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, body text)`)
	return err
}

// printing is the test of an example: what it says is the example's output.
type printing struct{ testing.TB }

func (printing) Helper()                           {}
func (printing) Context() context.Context          { return context.Background() }
func (printing) Errorf(format string, args ...any) { fmt.Printf(format, args...) }
