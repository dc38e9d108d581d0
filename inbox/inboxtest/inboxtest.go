// Package inboxtest feeds messages to the handler of a service, in the service's own database and
// without a broker:
//
//	c := inboxtest.New(t, inbox.Config{Service: "mailer", Pool: pool, Handler: handle})
//	m := inboxtest.Message("order", "42", "created", order)
//	c.Deliver(m) // inboxtest.Done: now look at the effect
//	c.Deliver(m) // inboxtest.Duplicate: there still is one effect
//
// All is as behind inbox/rabbit and inbox/kafka: the transaction with the record of the event, what
// an error means, when the next attempt would be. Only nobody waits for it.
package inboxtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Outcome says what became of a message.
type Outcome string

// The outcomes of a message. After each of them the broker would get its acknowledgement.
const (
	Done Outcome = "done" // the handler's effect is committed
	// the event was processed before, so the handler was not called
	Duplicate Outcome = "duplicate"
	// the attempt failed and its effect is rolled back; the next attempt is with Result.Next
	Retry      Outcome = "retry"
	DeadLetter Outcome = "dead letter" // the attempt failed, and there is no further one
)

// Result is what became of a message that was delivered.
type Result struct {
	Outcome Outcome       // what has become of the message
	Failure inbox.Failure // why the attempt failed; Level is the pause before Next
	Next    inbox.Message // after a Retry, the message as it comes again
}

// Consumer stands for inbox/rabbit or inbox/kafka. Use it in the goroutine of the test, which it
// may end.
type Consumer struct {
	t  testing.TB
	in *inbox.Inbox
}

const databasePatience = time.Minute

// New makes a Consumer. The test ends when cfg is wrong or the database cannot record events: the
// table of inbox.Schema must be there. Without cfg.Log the test's log has what the inbox logs.
func New(t testing.TB, cfg inbox.Config) *Consumer {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if handle := cfg.Handler; handle != nil {
		cfg.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
			noteHandlerCall(ctx)
			return handle(ctx, tx, m)
		}
	}
	if handle := cfg.HandlerSQL; handle != nil {
		cfg.HandlerSQL = func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			noteHandlerCall(ctx)
			return handle(ctx, tx, m)
		}
	}
	in, err := inbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), databasePatience)
	defer cancel()
	if err := in.Transport("inboxtest").Ready(ctx); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	return &Consumer{t, in}
}

// Message is a message with an id of its own, at its first attempt. The payload is encoded by
// json.Marshal, but a []byte is JSON already; nil and outbox.Tombstone make it a tombstone, whose
// Payload is nil. It panics when there is no JSON of it.
func Message(aggregate, key, eventType string, payload any) inbox.Message {
	m := inbox.Message{ID: rand.Text(), Aggregate: aggregate, Key: key, Type: eventType, Committed: time.Now(), Attempt: 1, Source: "inboxtest"}
	if _, tombstone := payload.(interface{ IsTombstone() }); tombstone || payload == nil {
		return m
	}
	if text, is := payload.([]byte); is {
		payload = json.RawMessage(text)
	}
	var err error
	if m.Payload, err = json.Marshal(payload); err != nil {
		panic(err)
	}
	return m
}

// Deliver hands the inbox a message as a broker does. It returns when the broker would get its
// acknowledgement. If the broker would get none, because the database does not answer, the test
// ends.
func (c *Consumer) Deliver(m inbox.Message) Result {
	c.t.Helper()
	d := &delivery{}
	ctx, cancel := context.WithTimeout(context.WithValue(c.t.Context(), deliveryKey{}, d), databasePatience)
	defer cancel()
	if err := c.in.Transport("inboxtest").Handle(ctx, m, d); err != nil {
		c.t.Fatalf("inboxtest: message %s would come again: %v", m.ID, err)
	}
	if d.Outcome == "" && d.handlerCalled {
		d.Outcome = Done
	}
	d.Outcome = cmp.Or(d.Outcome, Duplicate)
	return d.Result
}

// delivery is what a broker does with one message: it implements inbox.Publisher.
type delivery struct {
	Result
	handlerCalled bool
}

// deliveryKey is the key of the delivery in the context of its handler.
type deliveryKey struct{}

func noteHandlerCall(ctx context.Context) {
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		d.handlerCalled = true
	}
}

// Retry keeps the message for its next attempt.
func (d *delivery) Retry(_ context.Context, m inbox.Message, f inbox.Failure) error {
	d.Result = Result{Retry, f, m}
	d.Next.Attempt, d.Next.FirstFailed = f.Attempts+1, f.FirstFailed
	return nil
}

// DeadLetter gives the message up.
func (d *delivery) DeadLetter(_ context.Context, _ inbox.Message, f inbox.Failure) error {
	d.Result = Result{Outcome: DeadLetter, Failure: f}
	return nil
}
