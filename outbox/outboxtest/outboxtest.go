// Package outboxtest tells a test which events a service has written, without a relay and a broker:
//
//	outboxtest.Written(t, tx, outbox.Event{Aggregate: "order", Key: "42", Type: "created", Payload: order})
//
// A transaction is asked for what it has written itself, so a test may roll it back. A pool or a
// connection is asked for what is committed. Logical messages of Emit are in no table: test what
// emits them with Write.
package outboxtest

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// DB is a pgx.Tx, a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) // reads rows
}

// DBSQL is a *sql.Tx, a *sql.DB or a *sql.Conn.
type DBSQL interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) // reads rows
}

// Written is [Outbox.Written] for the table that outbox.Write writes to.
func Written(t testing.TB, db DB, want ...outbox.Event) {
	t.Helper()
	Outbox{}.Written(t, db, want...)
}

// WrittenSQL is [Written] for database/sql.
func WrittenSQL(t testing.TB, db DBSQL, want ...outbox.Event) {
	t.Helper()
	Outbox{}.WrittenSQL(t, db, want...)
}

// Outbox is an outbox of your own.
type Outbox struct {
	Config outbox.Config // what outbox.New has been given
}

// Written fails the test, which goes on, unless the events are exactly want, in the order in which
// they were written. Without want there must be none. The test's log has the difference, line by
// line.
//
// If db is a transaction, the events are those that it has written: by the column tx of the table,
// and without that column all that it sees. Else they are the committed ones of the aggregates and
// keys of want, so that tests with keys of their own may share a database; there must be a want.
//
// Aggregate, Key and Type must be equal. An ID, a Payload or Headers that want does not have are
// not compared. Payloads are compared as JSON: neither spaces, nor the order of members, nor zeros
// at the end of a number make a difference. One that is outbox.Tombstone wants NULL.
func (o Outbox) Written(t testing.TB, db DB, want ...outbox.Event) {
	t.Helper()
	_, inside := db.(pgx.Tx)
	query, args := o.readSQL(inside)
	rows, err := db.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("outboxtest: read %s: %v", o.table(), err)
	}
	defer rows.Close()
	o.compareEvents(t, rows, inside, want)
}

// WrittenSQL is [Outbox.Written] for database/sql.
func (o Outbox) WrittenSQL(t testing.TB, db DBSQL, want ...outbox.Event) {
	t.Helper()
	_, inside := db.(*sql.Tx)
	query, args := o.readSQL(inside)
	rows, err := db.QueryContext(t.Context(), query, args...) //nolint:rowserrcheck // compare does
	if err != nil {
		t.Fatalf("outboxtest: read %s: %v", o.table(), err)
	}
	defer rows.Close() //nolint:errcheck // Err has what is to be known
	o.compareEvents(t, rows, inside, want)
}

func (o Outbox) table() string { return cmp.Or(o.Config.Table, "outbox") }

// readSQL reads all rows, or those of the transaction, in the order of the statements: rows may lie
// otherwise. By way of JSON it asks for columns that the table may lack.
func (o Outbox) readSQL(inside bool) (query string, args []any) {
	c := o.Config.Columns
	query = fmt.Sprintf(`SELECT coalesce(r->>$1::text, ''), coalesce(r->>$2::text, ''), coalesce(r->>$3::text, ''), coalesce(r->>$4::text, ''),
		coalesce(r->>$5::text, '{}'), o.%s::text FROM %s o, LATERAL to_jsonb(o) r`,
		pgx.Identifier{cmp.Or(c.Payload, "payload")}.Sanitize(), pgx.Identifier(strings.Split(o.table(), ".")).Sanitize())
	if inside {
		query += " WHERE coalesce(r->>'tx', pg_current_xact_id()::text) = pg_current_xact_id()::text"
	}
	query += " ORDER BY lpad(r->>'tx', 20, '0'), CASE WHEN r->>'tx' IS NULL THEN age(o.xmin) END DESC, o.cmin::text::bigint, o.tableoid, o.ctid"
	return query, []any{
		cmp.Or(c.ID, "id"), cmp.Or(c.Aggregate, "aggregatetype"), cmp.Or(c.Key, "aggregateid"), cmp.Or(c.Type, "type"), cmp.Or(c.Headers, "headers"),
	}
}

// rows are those of pgx and of database/sql.
type rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

func (o Outbox) compareEvents(t testing.TB, found rows, inside bool, want []outbox.Event) {
	t.Helper()
	if !inside && len(want) == 0 {
		t.Fatal("outboxtest: no event is wanted of a database that others may write to: ask the transaction")
	}
	var written []outbox.Event
	for found.Next() {
		var ev outbox.Event
		var headers string
		var payload *string
		err := found.Scan(&ev.ID, &ev.Aggregate, &ev.Key, &ev.Type, &headers, &payload)
		if err := errors.Join(err, json.Unmarshal([]byte(headers), &ev.Headers)); err != nil {
			t.Fatalf("outboxtest: read %s: %v", o.table(), err)
		}
		if ev.Payload = outbox.Tombstone; payload != nil {
			ev.Payload = json.RawMessage(*payload)
		}
		if inside || slices.ContainsFunc(want, func(w outbox.Event) bool { return w.Aggregate == ev.Aggregate && w.Key == ev.Key }) {
			written = append(written, likeWanted(ev, want, len(written)))
		}
	}
	if err := found.Err(); err != nil {
		t.Fatalf("outboxtest: read %s: %v", o.table(), err)
	}
	if a, b := eventLines(t, want), eventLines(t, written); !slices.Equal(a, b) {
		t.Errorf("the events in %s are not those that are wanted (- wanted, + written):\n%s", o.table(), lineDifference(a, b))
	}
}

// likeWanted is what was written without what is not wanted of it, by the event at its place, or
// else one of the same name.
func likeWanted(ev outbox.Event, want []outbox.Event, place int) outbox.Event {
	same := func(w outbox.Event) bool { return w.Aggregate == ev.Aggregate && w.Key == ev.Key && w.Type == ev.Type }
	if place >= len(want) || !same(want[place]) {
		place = slices.IndexFunc(want, same)
	}
	if place < 0 || want[place].ID == "" {
		ev.ID = ""
	}
	if place < 0 || want[place].Headers == nil {
		ev.Headers = nil
	}
	if place >= 0 && want[place].Payload == nil {
		ev.Payload = nil
	}
	return ev
}

// eventLines are events as a test shows them, each value of a payload on a line of its own.
func eventLines(t testing.TB, events []outbox.Event) (all []string) {
	t.Helper()
	for i, ev := range events {
		all = append(all, ev.Aggregate+" "+ev.Key+" "+ev.Type)
		if ev.ID != "" {
			all = append(all, "  id: "+ev.ID)
		}
		for _, name := range slices.Sorted(maps.Keys(ev.Headers)) {
			all = append(all, "  header "+name+": "+ev.Headers[name])
		}
		switch document, err := payloadText(ev.Payload); {
		case err != nil:
			t.Fatalf("outboxtest: the payload of event %d: %v", i+1, err)
		case document != "":
			all = append(all, strings.Split("  "+document, "\n")...)
		}
	}
	return all
}

// payloadText is the same text for all payloads that say the same; "" for nil.
func payloadText(of any) (string, error) {
	switch p := of.(type) {
	case nil:
		return "", nil
	case string:
		return "", errors.New("it is a string: use json.RawMessage for text that is JSON")
	case []byte:
		of = json.RawMessage(p)
	}
	if of == any(outbox.Tombstone) {
		return "a tombstone", nil
	}
	document, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	_ = d.Decode(&value) //nolint:errcheck // what Marshal returns can be decoded
	shown, err := json.MarshalIndent(plainNumbers(value), "  ", "  ")
	return string(shown), err
}

// plainNumbers is a decoded document with its numbers in one form: jsonb keeps zeros that
// json.Marshal does not write.
func plainNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case json.Number:
		if n := v.String(); strings.Contains(n, ".") && !strings.ContainsAny(n, "eE") {
			return json.Number(strings.TrimSuffix(strings.TrimRight(n, "0"), "."))
		}
	}
	return value
}

// lineDifference is all lines of a and b in their order, with "-" before those of a alone and "+"
// before those of b alone.
func lineDifference(a, b []string) string {
	common := map[[2]int]int{} // how many lines a[i:] and b[j:] have in common
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			common[[2]int{i, j}] = max(common[[2]int{i + 1, j}], common[[2]int{i, j + 1}])
			if a[i] == b[j] {
				common[[2]int{i, j}] = common[[2]int{i + 1, j + 1}] + 1
			}
		}
	}
	var shown strings.Builder
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			shown.WriteString("  " + a[i] + "\n")
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[[2]int{i + 1, j}] >= common[[2]int{i, j + 1}]:
			shown.WriteString("- " + a[i] + "\n")
			i++
		default:
			shown.WriteString("+ " + b[j] + "\n")
			j++
		}
	}
	return shown.String()
}
