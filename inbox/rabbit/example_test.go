package rabbit_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
)

// A notification service: each order has one notification, however often its event is delivered.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	// In a service this is a migration.
	if _, err := pool.Exec(ctx, inbox.Schema("")+"CREATE TABLE notifications (order_id text, text text)"); err != nil {
		log.Fatal(err)
	}

	handle := func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.Type == "closed" {
			stop() // what SIGTERM does: this message is processed, and no other is begun
		}
		_, err := tx.Exec(ctx, "INSERT INTO notifications (order_id, text) VALUES ($1, $2)", m.Key, "your order is "+m.Type)
		return err
	}
	in, err := inbox.New(inbox.Config{
		Service: "notification-service", Pool: pool, Handler: handle, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := rabbit.New(in, rabbit.Config{
		URL:      os.Getenv("AMQP_URL"),
		Bindings: []rabbit.Binding{{Exchange: "outbox.events", Key: "order.*"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Run declares the queues as well. Here messages are published before.
	if err := consumer.Declare(ctx); err != nil {
		log.Fatal(err)
	}
	publish("1", "created")
	publish("1", "created") // once more
	publish("2", "closed")

	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}

	rows, err := pool.Query(context.Background(), "SELECT order_id || ': ' || text FROM notifications ORDER BY text DESC")
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
	// Output:
	// 7: your order is created
	// 7: your order is closed
}

// A command of the service gives dead letters back to it, once their cause is fixed.
func ExampleConsumer_Replay() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, inbox.Schema("billed")); err != nil {
		log.Fatal(err)
	}
	in, err := inbox.New(inbox.Config{
		Service: "billing", Pool: pool, Table: "billed", Registerer: prometheus.NewRegistry(),
		Handler: func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			stop()
			return fmt.Errorf("refund order %s: not implemented: %w", m.Key, inbox.ErrPermanent)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := rabbit.New(in, rabbit.Config{
		URL:      os.Getenv("AMQP_URL"),
		Bindings: []rabbit.Binding{{Exchange: "outbox.events", Key: "order.refunded"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Declare(ctx); err != nil {
		log.Fatal(err)
	}
	publish("3", "refunded")
	// The service:
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}

	// The command:
	n, err := consumer.Replay(context.Background(), inbox.ReplayFilter{Type: "refunded", Class: inbox.Permanent})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("replayed:", n)
	// Output: replayed: 1
}

// publish does what the relay does with an event about order 7.
func publish(id, event string) {
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		log.Fatal(err)
	}
	err = ch.Publish("outbox.events", "order."+event, true, false, amqp.Publishing{
		MessageId: id, Type: event, ContentType: "application/json", Body: []byte(`{}`), DeliveryMode: amqp.Persistent,
		Headers: amqp.Table{"aggregate_type": "order", "aggregate_id": "7"},
	})
	if err != nil {
		log.Fatal(err)
	}
}
