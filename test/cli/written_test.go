// This file is about events that a service writes by the package outbox: what they are at the
// broker.
package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of database/sql
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// writers are the ways to write events, each in a transaction of its own.
var writers = []struct {
	name  string
	write func(ctx context.Context, r *rig, events ...outbox.Event) error
}{
	{"Write", byPgx(inTrace.Write)},
	{"WriteSQL", bySQL(inTrace.WriteSQL)},
	{"Emit", byPgx(inTrace.Emit)},
	{"EmitSQL", bySQL(inTrace.EmitSQL)},
}

// inTrace is the package's outbox with OpenTelemetry's trace context, as docs/outbox.md says.
var inTrace = func() *outbox.Writer {
	events, err := outbox.New(outbox.Config{
		Trace: func(ctx context.Context, carrier map[string]string) {
			propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(carrier))
		},
	})
	if err != nil {
		panic(err)
	}
	return events
}()

func byPgx(write func(context.Context, pgx.Tx, ...outbox.Event) error) func(context.Context, *rig, ...outbox.Event) error {
	return func(ctx context.Context, r *rig, events ...outbox.Event) error {
		conn, err := pgx.Connect(ctx, r.db)
		must(r.t, err)
		defer conn.Close(context.WithoutCancel(ctx))
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return write(ctx, tx, events...) })
	}
}

func bySQL(write func(context.Context, *sql.Tx, ...outbox.Event) error) func(context.Context, *rig, ...outbox.Event) error {
	return func(ctx context.Context, r *rig, events ...outbox.Event) error {
		db, err := sql.Open("pgx", r.db)
		must(r.t, err)
		defer db.Close()
		tx, err := db.BeginTx(ctx, nil)
		must(r.t, err)
		return errors.Join(write(ctx, tx, events...), tx.Commit())
	}
}

// What is written in one of these ways arrives with all its parts, in the order in which it was
// written, whatever the way. What was rolled back does not: TestRolledBack of the package.
func TestWrittenEventsArrive(t *testing.T) {
	t.Parallel()
	b, take := withMessages(t, "[public.outbox]")
	relay := b.start()
	ctx := trace.ContextWithSpanContext(await.Context(t), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}, TraceFlags: trace.FlagsSampled,
	}))
	payload := map[string]any{"total": 12.5, "text": "a\\\"<ü\n"}
	var want []string
	for _, w := range writers {
		var events []outbox.Event
		for i := range 2 {
			id := uuid.Must(uuid.NewV7()).String()
			want = append(want, id)
			events = append(events, outbox.Event{
				ID: id, Aggregate: "order", Key: "42", Type: fmt.Sprintf("%s-%d", w.name, i), Payload: payload, Headers: map[string]string{"tenant": "a"},
			})
		}
		must(t, w.write(ctx, b.rig, events...))
	}
	must(t, writers[0].write(await.Context(t), b.rig, outbox.Event{Aggregate: "order", Key: "42", Type: "removed", Payload: outbox.Tombstone}))
	for i := range want {
		d := next(t, take)
		if d.MessageId != want[i] || d.RoutingKey != "order."+d.Type || !strings.HasPrefix(d.Type, writers[i/2].name+"-") {
			t.Errorf("message %d is %s, %s, %s", i, d.MessageId, d.RoutingKey, d.Type)
		}
		var body any
		must(t, json.Unmarshal(d.Body, &body))
		if !reflect.DeepEqual(body, any(payload)) || header(d, "tenant") != "a" || header(d, "aggregate_type") != "order" || header(d, "aggregate_id") != "42" ||
			header(d, "traceparent") != "00-00000000000000000000000000000001-0000000000000002-01" {
			t.Errorf("%s: the message is %s, its headers %v", d.Type, d.Body, d.Headers)
		}
	}
	if d := next(t, take); d.Type != "removed" || len(d.Body) != 0 || d.Headers["traceparent"] != nil || d.Headers["tenant"] != nil || uuid.Validate(d.MessageId) != nil {
		t.Errorf("the last message is %+v", d)
	}
	relay.Stop(t)
}

// What the package takes is delivered: none of it is refused by the database, and none becomes a
// dead letter. What it does not take, the database is not asked about: the transaction goes on.
func TestWhatIsWrittenIsDelivered(t *testing.T) {
	t.Parallel()
	b, take := withMessages(t, "[public.outbox]")
	events := atTheLimits()
	for seed := range 300 {
		events = append(events, anyEvent.Example(seed))
	}
	refused := 0
	var want []string
	emitting := false
	both := func(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
		for i := range events {
			ev := &events[i]
			ev.ID = uuid.Must(uuid.NewV7()).String()
			write := outbox.Write
			if emitting = !emitting; emitting {
				write = outbox.Emit
			}
			switch err := write(ctx, tx, *ev); {
			case errors.Is(err, outbox.ErrInvalid):
				refused++
			case err != nil:
				return fmt.Errorf("%+v: %w", ev, err)
			default:
				want = append(want, ev.ID)
			}
		}
		return nil
	}
	relay := b.start()
	must(t, byPgx(both)(await.Context(t), b.rig, slices.Concat(events, events)...))
	if refused < 20 || len(want) < 2*len(atTheLimits())+100 {
		t.Fatalf("%d events were written and %d refused, want both", len(want), refused)
	}
	missing := map[string]bool{}
	for _, id := range want {
		missing[id] = true
	}
	eventually(t, func() string {
		for d := take(); d != nil; d = take() {
			delete(missing, d.MessageId)
		}
		if len(missing) > 0 {
			return fmt.Sprintf("%d of %d are missing; dead letters: %s", len(missing), len(want), b.ok("dead-letters", "list", "--wide"))
		}
		return ""
	})
	relay.Stop(t)
}

// atTheLimits are events that would be refused if they were one byte larger, or one more.
func atTheLimits() []outbox.Event {
	const size = 127<<10 - len("11111111-1111-1111-1111-111111111111") - len("ab")
	many := map[string]string{}
	for i := range 900 {
		many[fmt.Sprintf("header %03d", i)] = strings.Repeat("v", 127)
	}
	return []outbox.Event{
		{Aggregate: "a", Type: "b", Key: strings.Repeat("k", size), Payload: outbox.Tombstone},
		{Aggregate: "a", Type: strings.Repeat("t", 253), Headers: map[string]string{strings.Repeat("h", 255): "v"}, Payload: 1},
		{Aggregate: "a", Type: "b", Headers: many, Payload: struct{}{}},
		{Aggregate: strings.Repeat("a", 253), Type: "b", Payload: json.RawMessage(strings.Repeat("[", 1000) + strings.Repeat("]", 1000))},
		{Aggregate: "a", Type: "b", Payload: json.RawMessage("[1e1000,-1E-1000," + strings.Repeat("1", 1000) + "]")},
		{Aggregate: "a", Type: "b", Payload: json.RawMessage(` {"\ud83d\ude00":"\uffff\ufffd\u0001", "a":1,"a":2} `)},
	}
}

// anyEvent has texts of all kinds, most of which are taken.
var anyEvent = rapid.Custom(func(t *rapid.T) outbox.Event {
	word := rapid.OneOf(rapid.StringMatching(`[a-z#*. /]{1,20}`), rapid.StringN(1, 40, 120), rapid.Just("\xff"), rapid.Just(`\u0000"`))
	text := rapid.OneOf(rapid.String(), word)
	ev := outbox.Event{Aggregate: word.Draw(t, "aggregate"), Key: text.Draw(t, "key"), Type: word.Draw(t, "type"), Payload: outbox.Tombstone}
	switch rapid.IntRange(0, 4).Draw(t, "payload") {
	case 1:
		ev.Payload = rapid.MapOf(text, rapid.Float64()).Draw(t, "map")
	case 2:
		ev.Payload = []string{text.Draw(t, "text")}
	case 3:
		ev.Payload = json.RawMessage(`["\u` + rapid.StringMatching(`[0-9a-fd]{4}`).Draw(t, "unit") + `", 1e` + rapid.StringMatching(`-?[0-9]{1,4}`).Draw(t, "exponent") + `]`)
	case 4:
		ev.Payload = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	}
	if rapid.Bool().Draw(t, "has headers") {
		ev.Headers = rapid.MapOfN(rapid.OneOf(word, rapid.SampledFrom([]string{"tenant", "x-retry-count", "CC", "Id"})), text, 0, 5).Draw(t, "headers")
	}
	return ev
})

// The table that a service's own migration creates is the one that init creates.
func TestSchemaIsThatOfInit(t *testing.T) {
	t.Parallel()
	const described = `SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), ''), E'\n' ORDER BY a.attnum)
		|| E'\n' || (SELECT string_agg(pg_get_constraintdef(c.oid), E'\n' ORDER BY c.conname) FROM pg_constraint c WHERE c.conrelid = 'public.outbox'::regclass AND c.contype <> 'n')
		|| E'\n' || (SELECT string_agg(indexdef, E'\n' ORDER BY indexname) FROM pg_indexes WHERE tablename = 'outbox')
		|| E'\n' || (SELECT pg_get_triggerdef(t.oid) || tgenabled::text || prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid WHERE tgrelid = 'public.outbox'::regclass)
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = 'public.outbox'::regclass AND a.attnum > 0`
	of := func(create func(r *rig)) string {
		r := bare(t)
		create(r)
		return ask[string](r, described)
	}
	inits := of(func(r *rig) { r.ok("init", "--outbox-table") })
	ours := of(func(r *rig) {
		r.exec(outbox.Schema())
		r.exec(outbox.Schema()) // may be run again
	})
	if ours != inits || strings.Count(ours, "\n") != 12 {
		t.Errorf("outbox.Schema makes\n%s\ninit makes\n%s", ours, inits)
	}
}
