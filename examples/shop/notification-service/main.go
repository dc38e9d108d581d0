// Command notification-service writes a notification for each order: once, however often the order's
// event is delivered.
//
// DATABASE_URL is its database, LISTEN its address (by default :8080). AMQP_URL is RabbitMQ, or
// KAFKA_BROKERS has brokers of Kafka. RETRY_LEVELS are the pauses between attempts ("30s,1m,5m").
// With -replay it sends its dead letters to itself again, and ends.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/examples/shop/telemetry"
	"github.com/cdc-relay/cdc-relay/inbox"
)

// name is that of the queue, the consumer group, and the owner of dead letters, too.
const name = "notification-service"

// schema has the tables of this service. A migration tool would run it. An order's id is not unique
// in notifications: that each has one is the work of the inbox.
var schema = `
CREATE TABLE notifications (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id uuid NOT NULL,
    customer text NOT NULL,
    number bigint NOT NULL,
    message text NOT NULL,
    attempt int NOT NULL
);
CREATE TABLE items (name text PRIMARY KEY, title text NOT NULL);
INSERT INTO items VALUES ('book', 'A Book'), ('chair', 'A Chair'), ('lamp', 'A Lamp');
CREATE TABLE mailer (up boolean NOT NULL);
INSERT INTO mailer VALUES (true);
` + inbox.Schema("")

// notify is the handler. The notification is its effect; something else would mail what is in the
// table, and may mail it twice. The table mailer stands for what that something needs: when it is
// away an attempt fails, and another one may succeed. An item that nobody knows stays unknown.
func notify(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	var o struct {
		ID, Customer, Item string
		Number             int64
	}
	if err := json.Unmarshal(m.Payload, &o); err != nil {
		return fmt.Errorf("read order: %w: %w", err, inbox.ErrPermanent)
	}
	var title string
	err := tx.QueryRow(ctx, "SELECT title FROM items WHERE name = $1", o.Item).Scan(&title)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("item %q is unknown: %w", o.Item, inbox.ErrPermanent)
	} else if err != nil {
		return fmt.Errorf("read item: %w", err)
	}
	var up bool
	if err := tx.QueryRow(ctx, "SELECT up FROM mailer").Scan(&up); err != nil {
		return fmt.Errorf("ask for the mailer: %w", err)
	}
	if !up {
		return fmt.Errorf("the mailer is down: %w", inbox.ErrTransient)
	}
	_, err = tx.Exec(ctx, "INSERT INTO notifications (order_id, customer, number, message, attempt) VALUES ($1, $2, $3, $4, $5)",
		o.ID, o.Customer, o.Number, "Thank you for ordering "+title, m.Attempt)
	return err
}

func main() {
	replay := flag.Bool("replay", false, "send the dead letters to the service again, and end")
	flag.Parse()
	if err := run(*replay); err != nil {
		slog.Error("notification-service ends", "error", err)
		os.Exit(1)
	}
}

func run(replay bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stopTracing, err := telemetry.Trace(ctx, name)
	if err != nil {
		return err
	}
	defer stopTracing()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("read DATABASE_URL: %w", err)
	}
	defer pool.Close()
	if err := createTables(ctx, pool); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	c, err := newConsumer(pool)
	if err != nil {
		return err
	}
	if replay {
		n, err := c.replay(ctx)
		slog.Info("dead letters replayed", "messages", n)
		return err
	}
	failed := make(chan error, 1)
	go func() {
		failed <- telemetry.Serve(ctx, cmp.Or(os.Getenv("LISTEN"), ":8080"), http.NewServeMux())
		stop()
	}()
	err = c.run(ctx)
	stop()
	return errors.Join(err, <-failed)
}

// levels are the pauses of RETRY_LEVELS; nil for the inbox's own.
func levels() (list []time.Duration, err error) {
	for text := range strings.SplitSeq(os.Getenv("RETRY_LEVELS"), ",") {
		if text == "" {
			continue
		}
		level, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("read RETRY_LEVELS: %w", err)
		}
		list = append(list, level)
	}
	return list, nil
}

// createTables creates what is not there yet, in one transaction.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, "SELECT to_regclass('notifications') IS NOT NULL FROM pg_advisory_xact_lock(1)").Scan(&there)
		if err != nil || there {
			return err
		}
		_, err = tx.Exec(ctx, schema)
		return err
	})
}
