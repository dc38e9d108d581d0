package inboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/inboxtest"
)

// t is the test's own.
var t testing.TB = printing{}

// orderCreated is an event as another service writes it.
type orderCreated struct {
	Total int `json:"total"`
}

// An event that is delivered twice has one effect. One whose handler fails has none, and comes
// again until there is no further attempt.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, inbox.Schema("")+"CREATE TABLE notifications (order_id text, total int)"); err != nil {
		log.Fatal(err)
	}

	r := inbox.NewRouter(inbox.Reject)
	inbox.On(r, "order.created", func(ctx context.Context, tx pgx.Tx, order orderCreated) error {
		_, err := tx.Exec(ctx, "INSERT INTO notifications (order_id, total) VALUES ($1, $2)", inbox.MessageOf(ctx).Key, order.Total)
		if order.Total < 0 {
			return errors.Join(err, errors.New("the mailer refuses it"))
		}
		return err
	})
	c := inboxtest.New(t, inbox.Config{Service: "notification-service", Pool: pool, Handler: r.Handle})
	notifications := func() (n int) {
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM notifications").Scan(&n); err != nil {
			log.Fatal(err)
		}
		return n
	}

	m := inboxtest.Message("order", "42", "created", orderCreated{Total: 1250})
	fmt.Println(c.Deliver(m).Outcome, notifications())
	fmt.Println(c.Deliver(m).Outcome, notifications())

	m = inboxtest.Message("order", "43", "created", orderCreated{Total: -1})
	for {
		result := c.Deliver(m)
		fmt.Println(result.Outcome, result.Failure.Level, notifications())
		if result.Outcome == inboxtest.DeadLetter {
			break
		}
		m = result.Next
	}
	fmt.Println(c.Deliver(inboxtest.Message("order", "44", "renamed", nil)).Failure.Reason)
	// Output:
	// done 1
	// duplicate 1
	// retry 30s 1
	// retry 1m0s 1
	// retry 5m0s 1
	// dead letter 0s 1
	// there is no handler for the type "renamed" of "order"
}

// A service with database/sql, whose events are all of one type.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, inbox.Schema("")+"CREATE TABLE mails (customer text)"); err != nil {
		log.Fatal(err)
	}

	c := inboxtest.New(t, inbox.Config{
		Service: "mailer", DB: db,
		HandlerSQL: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO mails (customer) VALUES ($1)", m.Key)
			return err
		},
	})
	m := inboxtest.Message("customer", "7", "registered", map[string]string{"name": "Ann"})
	fmt.Println(c.Deliver(m).Outcome)
	fmt.Println(c.Deliver(m).Outcome)
	// Output:
	// done
	// duplicate
}

// printing is the test of an example: what it says is the example's output.
type printing struct{ testing.TB }

func (printing) Helper()                           {}
func (printing) Context() context.Context          { return context.Background() }
func (printing) Output() io.Writer                 { return io.Discard }
func (printing) Fatal(args ...any)                 { fmt.Println(args...) }
func (printing) Fatalf(format string, args ...any) { fmt.Printf(format, args...) }
