// This file runs the three snippets of the README: what writes an event, the relay, what consumes
// it.
package cli

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/inboxtest"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// Order is the README's.
type Order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

func placeOrder(ctx context.Context, pool *pgxpool.Pool, placed Order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", placed.ID, placed.Total)
		if err != nil {
			return err
		}
		event := outbox.Event{Aggregate: "order", Key: placed.ID, Type: "created", Payload: placed}
		return outbox.Write(ctx, tx, event)
	})
}

func consume(ctx context.Context, pool *pgxpool.Pool, amqpURL string) error {
	in, err := inbox.New(inbox.Config{
		Service: "notification-service",
		Pool:    pool,
		Handler: func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			_, err := tx.Exec(ctx, "INSERT INTO notifications (order_id, text) VALUES ($1, 'Thank you')", m.Key)
			return err
		},
	})
	if err != nil {
		return err
	}
	bindings := []rabbit.Binding{{Exchange: "outbox.events", Key: "order.created"}}
	c, err := rabbit.New(in, rabbit.Config{URL: amqpURL, Bindings: bindings})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Either end may start first: an event that no queue takes yet waits at the relay.
func TestBothEnds(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.vhost = b.broker.VHost(t) // an empty one
	b.exec(inbox.Schema("") + "CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL); CREATE TABLE notifications (order_id text NOT NULL, text varchar NOT NULL)")
	config := blocks.FindStringSubmatch(part(t, "README.md", "Write, relay, consume"))
	if config == nil || config[1] != "yaml" {
		t.Fatal("the README has no configuration between its two functions")
	}
	relay := runner.Start(t, b.binary, "admin: {listen: 127.0.0.1:0}\n"+strings.NewReplacer(
		"postgres://relay@localhost:5432/shop", b.db, "amqp://localhost:5672/", b.vhost,
		"source: {", "source: {slot: "+b.slot+", publication: "+b.slot+", ").Replace(config[2]))
	must(t, relay.WaitReady(await.Context(t)))

	ctx, stop := context.WithCancel(await.Context(t))
	defer stop()
	pool, err := pgxpool.New(ctx, b.db)
	must(t, err)
	defer pool.Close()
	must(t, placeOrder(ctx, pool, Order{ID: "42", Total: 1250}))
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx, pool, b.vhost) }()
	must(t, placeOrder(ctx, pool, Order{ID: "43", Total: 90}))
	becomes(b.rig, "42 43", `SELECT coalesce(string_agg(order_id, ' ' ORDER BY order_id), 'none') FROM notifications`)
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	relay.Stop(t)
}

// The README has these two functions as they stand here.
func TestReadmeIsRun(t *testing.T) {
	t.Parallel()
	source := document(t, "test/cli/both_ends_test.go")
	found := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(document(t, "README.md"), -1)
	for _, block := range found {
		if !strings.Contains(source, "\n"+block[1]+"\n") {
			t.Errorf("this file does not have\n%s", block[1])
		}
	}
	if len(found) != 2 {
		t.Errorf("the README has %d pieces of Go", len(found))
	}
}

// What a writer gives as the payload of a tombstone, the test of a consumer gives, too.
func TestTombstoneOfTheWriterInATestOfAConsumer(t *testing.T) {
	for _, payload := range []any{outbox.Tombstone, nil} {
		if m := inboxtest.Message("order", "42", "removed", payload); m.Payload != nil {
			t.Errorf("the payload is %q, want nil", m.Payload)
		}
	}
}
