package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// notify is the handler of a notification service: what it writes is committed together with the
// record that the event is processed.
func notify(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	var order struct {
		Customer string `json:"customer"`
		Total    int    `json:"total"`
	}
	if err := json.Unmarshal(m.Payload, &order); err != nil {
		return fmt.Errorf("decode order: %w: %w", inbox.ErrPermanent, err) // it will not change
	}
	_, err := tx.Exec(ctx, "INSERT INTO notifications (customer, text) VALUES ($1, $2)",
		order.Customer, fmt.Sprintf("your order of %d is on its way", order.Total))
	return err // nil commits; an error rolls back, and the message comes again later
}

// A message that is delivered twice has its effect once.
func Example() {
	ctx := context.Background()
	// The database with the tables of the handler.
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	// In a service this is a migration.
	if _, err := pool.Exec(ctx, inbox.Schema("")+"CREATE TABLE notifications (customer text, text text)"); err != nil {
		log.Fatal(err)
	}

	in, err := inbox.New(inbox.Config{
		Service: "notification-service", Pool: pool, Handler: notify, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		log.Fatal(err)
	}
	// Here rabbit.New(in, ...) or kafka.New(in, ...) would follow, and Run.
	m := inbox.Message{ID: "0193a1f0-5e5b-7c3a-9d0e-0c1b2a394857", Type: "created", Payload: []byte(`{"customer": "ann", "total": 1250}`)}
	for range 2 {
		if err := deliver(ctx, in, m); err != nil {
			log.Fatal(err)
		}
	}

	rows, err := pool.Query(ctx, "SELECT customer || ': ' || text FROM notifications")
	if err != nil {
		log.Fatal(err)
	}
	notifications, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range notifications {
		fmt.Println(n)
	}
	// Output: ann: your order of 1250 is on its way
}

// Each type of event has a handler, which gets the decoded payload. That of a tombstone gets the
// message itself. The inbox calls Handle, with its transaction.
func ExampleOn() {
	r := inbox.NewRouter(inbox.Reject) // or inbox.Ignore
	inbox.On(r, "order.created", func(ctx context.Context, _ pgx.Tx, order struct{ Total int }) error {
		fmt.Println("order", inbox.MessageOf(ctx).Key, "of", order.Total)
		return nil
	})
	inbox.On(r, "order.removed", func(_ context.Context, _ pgx.Tx, m inbox.Message) error {
		fmt.Println("order", m.Key, "is gone")
		return nil
	})

	for _, m := range []inbox.Message{
		{Aggregate: "order", Key: "42", Type: "created", Payload: []byte(`{"total": 1250}`)},
		{Aggregate: "order", Key: "42", Type: "removed"},
		{Aggregate: "order", Key: "42", Type: "renamed", Payload: []byte(`{}`)},
	} {
		if err := r.Handle(context.Background(), nil, m); err != nil {
			fmt.Println(err) // it becomes a dead letter
		}
	}
	// Output:
	// order 42 of 1250
	// order 42 is gone
	// there is no handler for the type "renamed" of "order"
}

// deliver does what inbox/rabbit and inbox/kafka do with a message of the broker.
func deliver(ctx context.Context, in *inbox.Inbox, m inbox.Message) error {
	return in.Transport("example").Handle(ctx, m, nil)
}
