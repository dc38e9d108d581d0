package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

const anID = "0190c5a4-0000-7000-8000-000000000001"

// rig is a schema of the test's own.
type rig struct {
	t    *testing.T
	url  string
	conn *pgx.Conn
}

func newRig(t *testing.T, ddl string) *rig {
	t.Helper()
	r := &rig{t: t, url: schema(t)}
	r.conn = r.connect(pgx.QueryExecModeCacheStatement)
	_, err := r.conn.Exec(t.Context(), ddl)
	must(t, err)
	return r
}

func (r *rig) connect(mode pgx.QueryExecMode) *pgx.Conn {
	r.t.Helper()
	cfg, err := pgx.ParseConfig(r.url)
	must(r.t, err)
	cfg.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(r.t.Context(), cfg)
	must(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// in runs do in a transaction, which is committed.
func (r *rig) in(do func(ctx context.Context, tx pgx.Tx) error) {
	r.t.Helper()
	ctx := r.t.Context()
	must(r.t, pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error { return do(ctx, tx) }))
}

// rows are the rows of a query, each as the text of its columns.
func (r *rig) rows(query string) (list []string) {
	r.t.Helper()
	found, err := r.conn.Query(r.t.Context(), query)
	must(r.t, err)
	list, err = pgx.CollectRows(found, pgx.RowTo[string])
	must(r.t, err)
	return list
}

// asText is a row of the default table, in the order of its insertion.
const asText = `SELECT concat_ws('|', id, aggregatetype, aggregateid, type, coalesce(payload::text, 'NULL'), coalesce(headers::text, 'NULL'), coalesce(traceparent, 'NULL')) FROM outbox ORDER BY ctid`

// traced is a configuration in whose trace the events are. A context without inSpan has no span.
var traced = outbox.Config{Trace: func(ctx context.Context, carrier map[string]string) {
	if ctx.Value(inSpan{}) != nil {
		carrier["traceparent"], carrier["tracestate"] = "00-00000000000000000000000000000001-0000000000000002-01", "vendor=1"
	}
}}

type inSpan struct{}

func span(t *testing.T) context.Context { return context.WithValue(t.Context(), inSpan{}, true) }

func newWriter(t *testing.T, cfg outbox.Config) *outbox.Writer {
	t.Helper()
	w, err := outbox.New(cfg)
	must(t, err)
	return w
}

// Each way to insert, with the ways in which pgx sends parameters, writes the same rows: all parts,
// and none that may be missing.
func TestWrite(t *testing.T) {
	t.Parallel()
	events := []outbox.Event{
		{
			ID: anID, Aggregate: "order", Key: "4'2", Type: "created", Headers: map[string]string{"tenant": `a"b\`},
			Payload: map[string]any{"text": "a\\b\n\"<&>ü\u2028", "n": 1},
		},
		{ID: strings.Replace(anID, "1", "2", 1), Aggregate: "tick", Key: "2", Type: "gone", Payload: outbox.Tombstone},
		{ID: strings.Replace(anID, "1", "3", 1), Aggregate: "tick", Type: "tock", Payload: struct{}{}},
	}
	want := []string{
		anID + `|order|4'2|created|{"n": 1, "text": "a\\b\n\"<&>ü` + "\u2028" + `"}|{"tenant": "a\"b\\", "tracestate": "vendor=1"}|00-00000000000000000000000000000001-0000000000000002-01`,
		events[1].ID + `|tick|2|gone|NULL|{"tracestate": "vendor=1"}|00-00000000000000000000000000000001-0000000000000002-01`,
		events[2].ID + `|tick||tock|{}|{"tracestate": "vendor=1"}|00-00000000000000000000000000000001-0000000000000002-01`,
	}
	for name, write := range map[string]func(r *rig) error{
		"pgx":                  withPgx(pgx.QueryExecModeCacheStatement, events),
		"pgx, described":       withPgx(pgx.QueryExecModeDescribeExec, events),
		"pgx, exec":            withPgx(pgx.QueryExecModeExec, events),
		"pgx, simple protocol": withPgx(pgx.QueryExecModeSimpleProtocol, events),
		"database/sql": func(r *rig) error {
			db, err := sql.Open("pgx", r.url)
			must(r.t, err)
			defer db.Close()
			tx, err := db.BeginTx(r.t.Context(), nil)
			must(r.t, err)
			return errors.Join(newWriter(r.t, traced).WriteSQL(span(r.t), tx, events...), tx.Commit())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, outbox.Schema())
			must(t, write(r))
			if got := r.rows(asText); !slices.Equal(got, want) {
				t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if len(events[0].Headers) != 1 {
				t.Errorf("the caller's event has the headers %v", events[0].Headers)
			}
		})
	}
}

func withPgx(mode pgx.QueryExecMode, events []outbox.Event) func(r *rig) error {
	return func(r *rig) error {
		return pgx.BeginFunc(r.t.Context(), r.connect(mode), func(tx pgx.Tx) error {
			return newWriter(r.t, traced).Write(span(r.t), tx, events...)
		})
	}
}

// Events that one statement does not carry are written in their order all the same, and get ids
// that order them, too. Without a span there is no trace; without events there is no row.
func TestManyEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, outbox.Schema())
	var events []outbox.Event
	var want []string
	for i := range 2501 {
		want = append(want, fmt.Sprintf("k%d", i))
		events = append(events, outbox.Event{Aggregate: "order", Key: want[i], Type: "created", Payload: i})
	}
	r.in(func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(outbox.Write(ctx, tx), outbox.Write(ctx, tx, events...))
	})
	for _, order := range []string{"ctid", "id"} {
		if got := r.rows("SELECT aggregateid FROM outbox ORDER BY " + order); !slices.Equal(got, want) {
			t.Errorf("%d rows, or not in the order of the events by %s", len(got), order)
		}
	}
	// of version 7, with the time of now
	first := r.rows("SELECT min(id::text) || ' ' || (abs(extract(epoch FROM now()) * 1000 - ('x' || translate(left(min(id::text), 13), '-', ''))::bit(48)::bigint) < 3600000) FROM outbox")[0]
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12} true$`).MatchString(first) || events[0].ID != "" {
		t.Errorf("the first id is %s; the event has %q", first, events[0].ID)
	}
	if got := r.rows("SELECT count(*)::text FROM outbox WHERE traceparent IS NOT NULL OR headers IS NOT NULL"); got[0] != "0" {
		t.Errorf("%s rows have a trace", got[0])
	}
}

// The transaction decides about events as about the rows they tell of.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, outbox.Schema())
	event := outbox.Event{Aggregate: "order", Type: "created", Payload: 1}
	cause := errors.New("the order is not placed")
	err := pgx.BeginFunc(t.Context(), r.conn, func(tx pgx.Tx) error {
		return errors.Join(outbox.Write(t.Context(), tx, event), cause)
	})
	if !errors.Is(err, cause) || len(r.rows(asText)) > 0 {
		t.Errorf("%v; the rows are %q", err, r.rows(asText))
	}
	r.in(func(ctx context.Context, tx pgx.Tx) error { // a savepoint alone
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return errors.Join(outbox.Write(ctx, tx, event), cause)
		})
		if !errors.Is(err, cause) {
			t.Error(err)
		}
		return outbox.Write(ctx, tx, outbox.Event{ID: anID, Aggregate: "order", Type: "refused", Payload: 1})
	})
	if got := r.rows(asText); len(got) != 1 || !strings.HasPrefix(got[0], anID) {
		t.Errorf("the rows are %q", got)
	}
}

// An error of the database says what it is about, and is the driver's.
func TestDatabaseError(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	ctx := t.Context()
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		return outbox.Write(ctx, tx, outbox.Event{Aggregate: "order", Type: "created", Payload: 1})
	})
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "42P01" || errors.Is(err, outbox.ErrInvalid) || !strings.Contains(err.Error(), `insert into "outbox"`) {
		t.Error(err)
	}
}

// A logical message has all members that the relay wants, in the text that was given, and is sent
// with its transaction. What arrives through the relay is in test/cli.
func TestEmit(t *testing.T) {
	t.Parallel()
	r := newRig(t, "SELECT pg_create_logical_replication_slot('emitted', 'test_decoding', true)")
	w, err := outbox.New(outbox.Config{Prefix: "shop", Trace: traced.Trace, Columns: outbox.Columns{Key: "key", Traceparent: outbox.NoColumn}})
	must(t, err)
	raw := json.RawMessage(`{"z":1, "a":[ 1.50,"\u00e9\\"]}`)
	r.in(func(_ context.Context, tx pgx.Tx) error {
		return errors.Join(
			w.Emit(span(t), tx, outbox.Event{ID: "1", Aggregate: "order", Key: "k", Type: "created", Payload: raw}, outbox.Event{ID: "2", Aggregate: "order", Key: "k", Type: "gone", Payload: outbox.Tombstone}),
			outbox.Emit(t.Context(), tx, outbox.Event{ID: "3", Aggregate: "a", Type: "t", Payload: true, Headers: map[string]string{"h": "é"}}),
		)
	})
	want := []string{
		`prefix: shop|{"id":"1","aggregatetype":"order","key":"k","type":"created","payload":{"z":1, "a":[ 1.50,"\u00e9\\"]},"headers":{"tracestate":"vendor=1"}}`,
		`prefix: shop|{"id":"2","aggregatetype":"order","key":"k","type":"gone","payload":null,"headers":{"tracestate":"vendor=1"}}`,
		`prefix: outbox|{"id":"3","aggregatetype":"a","aggregateid":null,"type":"t","payload":true,"headers":{"h":"é"},"traceparent":null}`,
	}
	got := r.rows(`SELECT regexp_replace(data, '^message: transactional: 1 (prefix: \w+), sz: \d+ content:', '\1|') FROM pg_logical_slot_get_changes('emitted', NULL, NULL) WHERE data LIKE 'message:%'`)
	if !slices.Equal(got, want) {
		t.Errorf("emitted were\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if w, err := outbox.New(outbox.Config{Columns: outbox.Columns{ID: outbox.NoColumn}}); err != nil || !errors.Is(w.Emit(t.Context(), nil, outbox.Event{}), outbox.ErrInvalid) {
		t.Errorf("a message without an id is emitted, %v", err)
	}
}

// The tables of examples/, and each type that a payload may have.
func TestOtherTables(t *testing.T) {
	t.Parallel()
	const no = outbox.NoColumn
	full := outbox.Event{Aggregate: "order", Key: "k", Type: "created", Payload: json.RawMessage(`{"b":"\\", "a":1}`)}
	for _, tc := range []struct {
		name, ddl, row string
		cfg            outbox.Config
		event          outbox.Event
		want           string // of the row, or of the error
	}{
		{
			"a number and a payload", "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload json NOT NULL)", "id || payload::text",
			outbox.Config{Columns: outbox.Columns{ID: no, Aggregate: no, Key: no, Type: no, Headers: no, Traceparent: no}},
			outbox.Event{Payload: full.Payload},
			`1{"b":"\\", "a":1}`,
		},
		{
			"Debezium's", `CREATE SCHEMA inventory; CREATE TABLE inventory.outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb); SET search_path = inventory`,
			"aggregatetype || aggregateid || type || payload",
			outbox.Config{Table: "inventory.outbox", Columns: outbox.Columns{Headers: no, Traceparent: no}},
			full, `orderkcreated{"a": 1, "b": "\\"}`,
		},
		{
			"a key alone", "CREATE TABLE outbox (id uuid PRIMARY KEY, event_key text, payload text NOT NULL, traceparent text)", "event_key || payload",
			outbox.Config{Columns: outbox.Columns{Aggregate: no, Key: "event_key", Type: no, Headers: no}},
			outbox.Event{Key: "k", Payload: json.RawMessage(`"text"`)},
			`k"text"`,
		},
		{
			"an id of another type", `CREATE TABLE outbox ("Id" bigint PRIMARY KEY, event_type text NOT NULL, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'new')`, `"Id" || event_type || status`,
			outbox.Config{Columns: outbox.Columns{ID: "Id", Aggregate: no, Key: no, Type: "event_type", Headers: no, Traceparent: no}},
			outbox.Event{ID: "17", Type: strings.Repeat("t", 255), Payload: 1},
			"17" + strings.Repeat("t", 255) + "new",
		},
		{
			"bytes", "CREATE TABLE outbox (id uuid PRIMARY KEY, payload bytea)", "",
			outbox.Config{Columns: outbox.Columns{Aggregate: no, Key: no, Type: no, Headers: no, Traceparent: no}},
			outbox.Event{Payload: 1},
			`column "payload" is of type bytea but expression is of type json`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.ddl)
			w, err := outbox.New(tc.cfg)
			must(t, err)
			ctx := t.Context()
			err = pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error { return w.Write(ctx, tx, tc.event) })
			if tc.row == "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Error(err)
				}
				return
			}
			must(t, err)
			if got := r.rows("SELECT " + tc.row + " FROM outbox"); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("the rows are %q, want %q", got, tc.want)
			}
			// what the table has no column for is not lost silently
			if err := w.Write(ctx, nil, outbox.Event{Aggregate: "a", Key: "k", Type: "t", Headers: map[string]string{"a": "b"}}); !errors.Is(err, outbox.ErrInvalid) || !strings.Contains(err.Error(), "no column") {
				t.Error(err)
			}
		})
	}
}

// A payload is measured as the relay reads it: a jsonb is longer than its JSON.
func TestMaxPayload(t *testing.T) {
	t.Parallel()
	payload := json.RawMessage(`{"a":[1,true,null,{}],"b":"x,y:\"\u0001"}`)
	event := outbox.Event{Aggregate: "order", Type: "created", Payload: payload}
	r := newRig(t, outbox.Schema())
	r.in(func(ctx context.Context, tx pgx.Tx) error { return outbox.Write(ctx, tx, event) })
	size, err := strconv.Atoi(r.rows("SELECT octet_length(payload::text)::text FROM outbox")[0])
	must(t, err)
	if size <= len(payload) {
		t.Fatalf("the payload has %d bytes in the table", size)
	}
	exact, err := outbox.New(outbox.Config{MaxPayload: size})
	must(t, err)
	r.in(func(ctx context.Context, tx pgx.Tx) error { return exact.Write(ctx, tx, event) })
	smaller, err := outbox.New(outbox.Config{MaxPayload: size - 1})
	must(t, err)
	if err := smaller.Write(t.Context(), nil, event); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("one byte too many: %v", err)
	}
}

// Schema creates a table that the same writer writes to, whatever it is configured to.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, cfg := range []outbox.Config{
		{Table: `public.Out"box`, Columns: outbox.Columns{ID: "event id", Payload: "body"}},
		{Columns: outbox.Columns{ID: outbox.NoColumn, Aggregate: outbox.NoColumn}},
	} {
		w, err := outbox.New(cfg)
		must(t, err)
		r := newRig(t, w.Schema())
		event := outbox.Event{Type: "created", Payload: 1, Headers: map[string]string{"a": "b"}}
		if cfg.Columns.Aggregate == "" {
			event.Aggregate = "order"
		}
		r.in(func(ctx context.Context, tx pgx.Tx) error { return w.Write(ctx, tx, event) })
	}
}
