package outboxtest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/outboxtest"
)

// judged is a test whose verdict is looked at.
type judged struct {
	testing.TB
	said   strings.Builder
	failed bool
}

func (j *judged) Helper() {}

func (j *judged) Errorf(format string, args ...any) {
	j.failed = true
	fmt.Fprintf(&j.said, format, args...)
}

func (j *judged) Fatalf(format string, args ...any) {
	j.Errorf(format, args...)
	runtime.Goexit()
}

func (j *judged) Fatal(args ...any) { j.Fatalf("%s", fmt.Sprint(args...)) }

// verdict is what an assertion says; "" if it holds.
func verdict(t testing.TB, assert func(testing.TB)) string {
	j, over := &judged{TB: t}, make(chan struct{})
	go func() {
		defer close(over)
		assert(j)
	}()
	<-over
	if j.failed != (j.said.Len() > 0) {
		t.Errorf("failed %v, and says %q", j.failed, &j.said)
	}
	return j.said.String()
}

type order struct {
	ID    string  `json:"id"`
	Total float64 `json:"total"`
	Lines []int   `json:"lines"`
}

// What one transaction has written is told from what it has not, whatever others have committed.
func TestWritten(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	placed := order{"42", 12.5, []int{1, 2}}
	created := outbox.Event{Aggregate: "order", Key: "42", Type: "created", Payload: placed, Headers: map[string]string{"tenant": "a"}}
	removed := outbox.Event{Aggregate: "order", Key: "41", Type: "removed", Payload: outbox.Tombstone}
	commit(t, pool, outbox.Event{Aggregate: "other", Key: "1", Type: "counted", Payload: 1})
	inTx(t, pool, func(tx pgx.Tx) {
		outboxtest.Written(t, tx) // nothing yet
		must(t, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return outbox.Write(t.Context(), tx, created) }))
		must(t, outbox.Write(t.Context(), tx, removed))
		named := func(change func(*outbox.Event)) outbox.Event {
			ev := created
			change(&ev)
			return ev
		}
		for name, tc := range map[string]struct {
			want []outbox.Event
			says string // "" if they are those
		}{
			"these":          {[]outbox.Event{created, removed}, ""},
			"any payload":    {[]outbox.Event{named(func(ev *outbox.Event) { ev.Payload, ev.Headers = nil, nil }), removed}, ""},
			"as JSON":        {[]outbox.Event{named(func(ev *outbox.Event) { ev.Payload = []byte(`{"lines": [1,2], "total": 12.50, "id": "42"}`) }), removed}, ""},
			"one more":       {[]outbox.Event{created, removed, removed}, "- order 41 removed\n-   a tombstone\n"},
			"one less":       {[]outbox.Event{created}, "+ order 41 removed\n+   a tombstone\n"},
			"another order":  {[]outbox.Event{removed, created}, "+ order 41 removed"},
			"none":           {nil, "+ order 42 created"},
			"another type":   {[]outbox.Event{named(func(ev *outbox.Event) { ev.Type = "paid" }), removed}, "- order 42 paid\n"},
			"another value":  {[]outbox.Event{named(func(ev *outbox.Event) { ev.Payload = order{"42", 13, []int{1, 2}} }), removed}, "    ],\n-     \"total\": 13\n+     \"total\": 12.5\n    }\n"},
			"a large number": {[]outbox.Event{named(func(ev *outbox.Event) { ev.Payload = 1<<53 + 1 }), removed}, "-   9007199254740993\n"},
			"a tombstone":    {[]outbox.Event{named(func(ev *outbox.Event) { ev.Payload = outbox.Tombstone }), removed}, "-   a tombstone\n+   {\n"},
			"no tombstone":   {[]outbox.Event{created, {Aggregate: "order", Key: "41", Type: "removed", Payload: struct{}{}}}, "-   {}\n+   a tombstone\n"},
			"another header": {[]outbox.Event{named(func(ev *outbox.Event) { ev.Headers = map[string]string{"tenant": "b"} }), removed}, "-   header tenant: b\n+   header tenant: a\n"},
			"another id":     {[]outbox.Event{named(func(ev *outbox.Event) { ev.ID = "1" }), removed}, "-   id: 1\n+   id: 0"},
			"text":           {[]outbox.Event{named(func(ev *outbox.Event) { ev.Payload = "{}" })}, "use json.RawMessage"},
		} {
			said := verdict(t, func(t testing.TB) { outboxtest.Written(t, tx, tc.want...) })
			if tc.says == "" && said != "" || !strings.Contains(said, tc.says) {
				t.Errorf("%s: it says %q, want %q", name, said, tc.says)
			}
		}
		must(t, tx.Rollback(t.Context()))
	})
	// Committed events are those of the wanted keys.
	commit(t, pool, created)
	outboxtest.Written(t, pool, created)
	for _, want := range [][]outbox.Event{{created, removed}, {created, created}, nil} {
		if verdict(t, func(t testing.TB) { outboxtest.Written(t, pool, want...) }) == "" {
			t.Errorf("%v are found", want)
		}
	}
}

// The same of database/sql, and of a table of one's own, which does not say who has written a row.
func TestWrittenSQL(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	must(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	ev := outbox.Event{Aggregate: "order", Key: "sql", Type: "created", Payload: 1}
	must(t, outbox.WriteSQL(t.Context(), tx, ev))
	outboxtest.WrittenSQL(t, tx, ev)
	if verdict(t, func(t testing.TB) { outboxtest.WrittenSQL(t, db, ev) }) == "" {
		t.Error("an event that is not committed is found")
	}

	const no = outbox.NoColumn
	own := outboxtest.Outbox{Config: outbox.Config{Table: "Events", Columns: outbox.Columns{ID: no, Aggregate: no, Key: no, Type: "kind", Payload: "body", Headers: no, Traceparent: no}}}
	events, err := outbox.New(own.Config)
	must(t, err)
	counted := outbox.Event{Type: "counted", Payload: map[string]int{"n": 2}}
	must(t, events.WriteSQL(t.Context(), tx, counted))
	own.WrittenSQL(t, tx, counted)
	if verdict(t, func(t testing.TB) { own.WrittenSQL(t, tx) }) == "" {
		t.Error("nothing was written")
	}
	if said := verdict(t, func(t testing.TB) {
		outboxtest.Outbox{Config: outbox.Config{Table: "nowhere"}}.WrittenSQL(t, db, counted)
	}); !strings.Contains(said, "nowhere") {
		t.Errorf("of a table that does not exist it says %q", said)
	}
}

// Events are in the order in which they were written, though rows of the table are not: a row takes
// the place of another one that is gone. No other test runs meanwhile: its transactions would keep
// that one.
func TestOrder(t *testing.T) {
	pool := connect(t)
	_, err := pool.Exec(t.Context(), `CREATE TABLE reused (id uuid, kind text, body text); ALTER TABLE reused ALTER body SET STORAGE PLAIN;
		INSERT INTO reused (body) SELECT repeat('x', 2000) FROM generate_series(1, 40); DELETE FROM reused WHERE ctid IN ('(0,1)', '(0,2)')`)
	must(t, err)
	_, err = pool.Exec(t.Context(), "VACUUM reused")
	must(t, err)
	const no = outbox.NoColumn
	own := outboxtest.Outbox{Config: outbox.Config{Table: "reused", Columns: outbox.Columns{Aggregate: no, Key: no, Type: "kind", Payload: "body", Headers: no, Traceparent: no}}}
	events, err := outbox.New(own.Config)
	must(t, err)
	inTx(t, pool, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), "DELETE FROM reused")
		must(t, err)
		var want []outbox.Event
		for _, size := range []int{6000, 3500} {
			want = append(want, outbox.Event{Type: "counted", Payload: strings.Split(strings.Repeat("x", size), "-")})
			must(t, events.Write(t.Context(), tx, want[len(want)-1]))
		}
		var moved bool
		must(t, tx.QueryRow(t.Context(), "SELECT (array_agg(length(body) ORDER BY ctid))[1] < 6000 FROM reused").Scan(&moved))
		if !moved {
			t.Fatal("no row has the place of another one")
		}
		own.Written(t, tx, want...)
	})
}

func connect(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), os.Getenv("DATABASE_URL"))
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// inTx runs do in a transaction, and rolls it back.
func inTx(t *testing.T, pool *pgxpool.Pool, do func(tx pgx.Tx)) {
	t.Helper()
	undo := errors.New("undo")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		do(tx)
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
}

func commit(t *testing.T, pool *pgxpool.Pool, events ...outbox.Event) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return outbox.Write(t.Context(), tx, events...) }))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
