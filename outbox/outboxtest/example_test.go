package outboxtest_test

import (
	"context"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/outboxtest"
)

// t is the test's own.
var t testing.TB = &printing{}

// place is what a service does: the order and its event are committed together.
func place(ctx context.Context, tx pgx.Tx, id string, total float64) error {
	if _, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", id, total); err != nil {
		return err
	}
	return outbox.Write(ctx, tx, outbox.Event{
		Aggregate: "order", Key: id, Type: "created", Payload: map[string]any{"id": id, "total": total},
	})
}

// The test rolls its transaction back, and leaves nothing behind. Its second assertion fails.
func ExampleWritten() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, outbox.Schema()); err != nil { // unless your migrations have it
		t.Fatal(err)
	}
	if err := place(ctx, tx, "7", 12.5); err != nil { // what is tested
		t.Fatal(err)
	}
	want := outbox.Event{Aggregate: "order", Key: "7", Type: "created", Payload: map[string]any{"id": "7", "total": 12.5}}
	outboxtest.Written(t, tx, want)

	want.Payload = map[string]any{"id": "7", "total": 13}
	outboxtest.Written(t, tx, want)
	// Output:
	// the events in outbox are not those that are wanted (- wanted, + written):
	//   order 7 created
	//     {
	//       "id": "7",
	// -     "total": 13
	// +     "total": 12.5
	//     }
}
