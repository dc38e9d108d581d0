package inboxtest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/inboxtest"
)

// judged is a test whose end is looked at.
type judged struct {
	testing.TB
	said string
}

func (j *judged) Helper() {}

func (j *judged) Fatalf(format string, args ...any) {
	j.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (j *judged) Fatal(args ...any) { j.Fatalf("%s", fmt.Sprint(args...)) }

// fatal is what ends a test.
func fatal(t testing.TB, do func(t testing.TB)) string {
	j, over := &judged{TB: t}, make(chan struct{})
	go func() {
		defer close(over)
		do(j)
	}()
	<-over
	return j.said
}

// A test ends, and does not wait, when the service could not run: without its table, for one.
func TestServiceThatCannotRun(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	handle := func(context.Context, pgx.Tx, inbox.Message) error { return nil }
	for want, cfg := range map[string]inbox.Config{
		"want one of them":           {Service: "mailer", Handler: handle},
		"CREATE TABLE IF NOT EXISTS": {Service: "mailer", Pool: pool, Handler: handle, Table: "nowhere"},
	} {
		if said := fatal(t, func(t testing.TB) { inboxtest.New(t, cfg) }); !strings.Contains(said, want) {
			t.Errorf("the test ends with %q, want %q", said, want)
		}
	}
}

// The effect of a message is in the database when Deliver returns, that of a failed one is not; a
// later attempt carries what the service has written down about the first.
func TestDeliver(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), inbox.Schema("delivered")+"CREATE TABLE effects (id text)"); err != nil {
		t.Fatal(err)
	}
	c := inboxtest.New(t, inbox.Config{Service: "mailer", Pool: pool, Table: "delivered", Handler: func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", m.ID); err != nil {
			return err
		}
		if m.Attempt == 1 {
			panic("at first")
		}
		return nil
	}})
	m := inboxtest.Message("order", "42", "removed", nil)
	first := c.Deliver(m)
	if first.Outcome != inboxtest.Retry || first.Failure.Class != inbox.Panic || m.ID == "" || m.Payload != nil || first.Next.ID != m.ID || first.Next.FirstFailed.IsZero() {
		t.Errorf("the first attempt ends with %+v", first)
	}
	for attempt, want := range []inboxtest.Outcome{inboxtest.Done, inboxtest.Duplicate} {
		var effects int
		if got := c.Deliver(first.Next); got.Outcome != want {
			t.Errorf("delivery %d ends with %+v, want %s", attempt+2, got, want)
		}
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM effects").Scan(&effects); err != nil || effects != 1 {
			t.Errorf("%d effects, %v", effects, err)
		}
	}
	other := first.Next
	other.Payload = []byte("1")
	if got := c.Deliver(other); got.Outcome != inboxtest.DeadLetter || !strings.Contains(got.Failure.Reason, "another content") {
		t.Errorf("another event with the id ends with %+v", got)
	}
}
