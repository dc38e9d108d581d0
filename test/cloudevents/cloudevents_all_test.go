//go:build testall

// Package cloudevents has the SDK of CloudEvents read what a relay has sent to real brokers. It is
// a module of its own, because the relay needs none of what the SDK needs.
package cloudevents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/inboxtest"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

func TestMain(m *testing.M) { servers.Main(m) }

// broker is a place on a real broker for one test.
type broker interface {
	// sink is the sink's section, in a flow mapping, and what is more of it.
	sink(more string) string
	// received returns the first n messages, in the order in which they came.
	received(t *testing.T, n int) []message
}

// message is what a consumer gets.
type message struct {
	binding.Message

	id, key, contentType string // of the relay's own headers and properties; "": there is none
	value                []byte // nil: null
	headers              map[string]string
}

var brokers = map[string]func(t *testing.T) broker{"Kafka": onKafka, "RabbitMQ": onRabbitMQ}

// row is a row of one of the tables, which differ in the type of the payload.
type row struct {
	table, id, aggregate, key, kind, mime, payload string

	null bool   // the payload is
	dead string // the text of its dead letter, without its beginning
}

const (
	trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	text  = "a \"b\" \\ \t\r\n\x01 日本 \u0085\u2028 </script> \U0001F600"
	// how serializers for a schema registry begin: a zero byte, and the schema's id
	avro = "\x00\x00\x00\x01\x07\x02\x0cfoo\xff\xfe\x00\x80"
)

var long = strings.Repeat("日本語\"\\", 1000) // 11,000 bytes

var rows = []row{
	{table: "of_json", id: "1", aggregate: "order", key: "42", kind: "com.example.placed", payload: `{"total":  12.50, "who": "日本", "x": "\u0000"}`},
	{table: "of_json", id: "2", aggregate: "order", key: "42", kind: "k", payload: `[1, 2.0e3, null, "a\"b"]`},
	{table: "of_json", id: "3", aggregate: "order", key: "42", kind: "k", payload: `"text"`},
	{table: "of_json", id: "4", aggregate: "order", key: "42", kind: "k", payload: `{}`, mime: "application/vnd.shop.order+json; v=1"},
	{table: "of_json", id: "5", aggregate: "order", key: "42", kind: "k", null: true},
	{table: "of_text", id: "6", aggregate: "order", key: "42", kind: "k", payload: text},
	{table: "of_text", id: "7", aggregate: "order", key: "42", kind: "k", payload: ""},
	{table: "of_text", id: "8", aggregate: "order", key: "42", kind: "k", payload: `<much wow="xml"/>`, mime: "application/xml; charset=utf-8"},
	{table: "of_text", id: "9", aggregate: "order", key: "42", kind: "k", payload: `{"a": 1}`, mime: "application/json"},
	{table: "of_text", id: "10", aggregate: "order", key: "42", kind: "k", payload: `{"a": `, mime: "application/json"},
	{table: "of_bytea", id: "11", aggregate: "order", key: "42", kind: "k", payload: avro, mime: "application/avro"},
	{table: "of_bytea", id: "12", aggregate: "order", key: "42", kind: "k", payload: avro},
	{table: "of_bytea", id: "13", aggregate: "order", key: "42", kind: "k", payload: ""},
	{table: "of_bytea", id: "14", aggregate: "order", key: "42", kind: "k", payload: `{"a": 1}`, mime: "application/json"},
	// what a subject and an id may have
	{table: "of_json", id: "größe/日本 \"\\ \U0001F600", aggregate: "größe\u00a0", key: "日本\u2028\"'\\&<", kind: "тип", payload: `{}`},
	{table: "of_json", id: "16", aggregate: "order", key: long, kind: "k", payload: `{}`},
	{table: "of_json", id: "17", aggregate: "", key: "42", kind: "k", payload: `{}`},
	{table: "of_json", id: "18", aggregate: "order", key: "", kind: "k", payload: `{}`},
	// what has no place in a CloudEvent
	{table: "of_json", id: "dead\n", aggregate: "order", key: "1", kind: "k", payload: `{}`, dead: "id has a control character"},
	{table: "of_json", id: "dead 2", aggregate: "order", key: "a\x1fb", kind: "k", payload: `{}`, dead: "subject has a control character"},
	{table: "of_json", id: "dead 3", aggregate: "order", key: "2", kind: "", payload: `{}`, dead: "type is empty"},
	{table: "of_json", id: " ", aggregate: "order", key: "3", kind: "k", payload: `{}`, dead: "id is empty"},
	{table: "of_json", id: "dead 4", aggregate: "order", key: "4", kind: "k", payload: `{}`, mime: "avro", dead: "datacontenttype is no content type"},
}

// stand is a database with the tables, and the configuration of a relay.
type stand struct {
	t      *testing.T
	db     string
	config string
	at     time.Time // of all rows
}

func newStand(t *testing.T, on broker, sink string) *stand {
	t.Helper()
	s := &stand{t: t, db: servers.SharedPostgres(t).Database(t), at: time.Date(2026, 11, 30, 11, 14, 15, 167_089_000, time.UTC)}
	for _, kind := range []string{"json", "text", "bytea"} {
		s.exec(fmt.Sprintf(`CREATE TABLE of_%[1]s (id text, aggregatetype text, aggregateid text, type text, payload %[1]s, traceparent text, at timestamptz, mime text)`, kind))
	}
	slot := fmt.Sprintf("cloudevents_%d", time.Now().UnixNano())
	s.config = fmt.Sprintf("source: {url: '%s', slot: %s, publication: %s, tables: [of_json, of_text, of_bytea]}\noutbox: {timestamp: at}\n"+
		"delivery: {ordering: commit}\nsink: {%s}\n", s.db, slot, slot, sink)
	return s
}

func (s *stand) exec(sql string, args ...any) {
	s.t.Helper()
	await.Must(s.t, pgserver.OnConn(await.Context(s.t), s.db, func(conn *pgx.Conn) error {
		_, err := conn.Exec(await.Context(s.t), sql, args...)
		return err
	}))
}

// insert inserts a row in a transaction of its own.
func (s *stand) insert(r row) {
	s.t.Helper()
	var payload any = []byte(r.payload)
	if r.table != "of_bytea" {
		payload = r.payload
	}
	if r.null {
		payload = nil
	}
	var mime any
	if r.mime != "" {
		mime = r.mime
	}
	s.exec("INSERT INTO "+r.table+" VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", r.id, r.aggregate, r.key, r.kind, payload, trace, s.at, mime)
}

// dead are the errors of the dead letters, by the id of the event.
func (s *stand) dead() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	await.Must(s.t, pgserver.OnConn(await.Context(s.t), s.db, func(conn *pgx.Conn) error {
		list, err := conn.Query(await.Context(s.t), "SELECT convert_from(id, 'UTF8'), error FROM cdc_relay.dead_letter")
		if err != nil {
			return err
		}
		var id, text string
		_, err = pgx.ForEachRow(list, []any{&id, &text}, func() error {
			found[id] = text
			return nil
		})
		return err
	}))
	return found
}

// TestSDK has the SDK read each row's event, in both modes and on both brokers.
func TestSDK(t *testing.T) {
	for name, open := range brokers {
		for _, mode := range []string{"binary", "structured"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				on := open(t)
				s := newStand(t, on, on.sink("")+", cloudevents: {mode: "+mode+", source: 'https://shop.example/orders#1', datacontenttype: '{column:mime}', "+
					"dataschema: 'urn:schema:{column:mime}', extensions: {mime: mime}}")
				relay := runner.Start(t, runner.Build(t), s.config)
				await.Must(t, relay.WaitReady(await.Context(t)))
				var sent []row
				dead := map[string]string{}
				for _, r := range rows {
					if r.mime != "" { // which is no URI otherwise
						r.mime = strings.ReplaceAll(r.mime, "; ", ";")
					}
					if s.insert(r); r.dead == "" {
						sent = append(sent, r)
					} else {
						dead[r.id] = "cloudevents " + r.dead
					}
				}
				for i, m := range on.received(t, len(sent)) {
					check(t, s, sent[i], m, mode)
				}
				await.Until(t, "the dead letters", func() bool { return len(s.dead()) == len(dead) })
				for id, text := range s.dead() {
					if want := dead[id]; want == "" || !strings.HasPrefix(text, want) {
						t.Errorf("the dead letter %q says %q, want %q", id, text, want)
					}
				}
				resend(t, s, on, sent[0], len(sent), mode)
			})
		}
	}
}

// read has the SDK read a message.
func read(t *testing.T, m message, mode string) *event.Event {
	t.Helper()
	if got := m.ReadEncoding().String(); got != mode {
		t.Fatalf("%s: the SDK takes it for %s, want %s", m.id, got, mode)
	}
	got, err := binding.ToEvent(context.Background(), m.Message)
	if err != nil {
		t.Fatalf("%s: %v", m.id, err)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("%s: %v", m.id, err)
	}
	return got
}

// check compares an event as the SDK has it with its row.
func check(t *testing.T, s *stand, r row, m message, mode string) {
	t.Helper()
	got := read(t, m, mode)
	usual := map[string]string{"of_json": "application/json", "of_text": "text/plain", "of_bytea": "application/octet-stream"}
	want := map[string]string{
		"id": r.id, "source": "https://shop.example/orders#1", "type": r.kind, "subject": r.aggregate + "/" + r.key, "datacontenttype": usual[r.table],
		"dataschema": "", "traceparent": trace, "partitionkey": r.key, "sequence": m.headers["cdc_position"], "mime": r.mime,
	}
	switch {
	case r.key == "":
		want["subject"] = ""
	case r.aggregate == "":
		want["subject"] = r.key
	}
	if r.mime != "" {
		want["datacontenttype"], want["dataschema"] = r.mime, "urn:schema:"+r.mime
	}
	has := map[string]string{"id": got.ID(), "source": got.Source(), "type": got.Type(), "subject": got.Subject(), "datacontenttype": got.DataContentType(), "dataschema": got.DataSchema()}
	for _, name := range []string{"traceparent", "partitionkey", "sequence", "mime"} {
		has[name] = ""
		if value, is := got.Extensions()[name]; is {
			has[name] = fmt.Sprint(value)
		}
	}
	for name, value := range want {
		if has[name] != value {
			t.Errorf("%s: %s is %q, want %q", r.id, name, has[name], value)
		}
	}
	if !got.Time().Equal(s.at) {
		t.Errorf("%s: the time is %s, want %s", r.id, got.Time(), s.at)
	}
	if string(got.Data()) != r.payload {
		t.Errorf("%s: the data is %q, want %q", r.id, got.Data(), r.payload)
	}
	if r.table == "of_json" && !r.null {
		var of any
		if err := json.Unmarshal(got.Data(), &of); err != nil {
			t.Errorf("%s: %v", r.id, err)
		}
	}
	// what consumers that know nothing of CloudEvents go by, such as the package inbox
	if m.id != r.id || m.headers["cdc_position"] == "" || m.headers["traceparent"] != trace {
		t.Errorf("%s: the relay's own headers are %q and %v", r.id, m.id, m.headers)
	}
	if mode == "binary" && string(m.value) != r.payload {
		t.Errorf("%s: the value is %q, want %q", r.id, m.value, r.payload)
	}
}

// resend sends an event again: it is the same event, whose sequence is below all others.
func resend(t *testing.T, s *stand, on broker, r row, before int, mode string) {
	t.Helper()
	result, err := runner.RunCommand(await.Context(t), runner.Build(t), s.config, "resend", "--id", r.id, "--table", "public."+r.table, "--unordered", "--reason", "a test", "--wait", "10m")
	if await.Must(t, err); result.Code != 0 {
		t.Fatalf("resend ends with %d: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	all := on.received(t, before+1)
	first, again := all[0], all[before]
	if again.headers["cdc_replay"] != "true" {
		t.Errorf("the repeat has the headers %v", again.headers)
	}
	check(t, s, r, again, mode)
	a, b := read(t, first, mode), read(t, again, mode)
	if low := fmt.Sprint(b.Extensions()["sequence"]); low >= fmt.Sprint(a.Extensions()["sequence"]) {
		t.Errorf("the repeat has the sequence %s", low)
	}
	b.SetExtension("sequence", a.Extensions()["sequence"])
	for _, e := range []*event.Event{a, b} {
		for _, ofTheSDK := range []string{"kafkaoffset", "kafkapartition", "kafkatopic"} {
			e.SetExtension(ofTheSDK, nil)
		}
	}
	if a.String() != b.String() {
		t.Errorf("the repeat is\n%s\nwant\n%s", b, a)
	}
	processed(t, s, first, again)
}

// processed has the package inbox process an event and its repeat, which is a duplicate.
func processed(t *testing.T, s *stand, first, again message) {
	t.Helper()
	s.exec(inbox.Schema(""))
	pool, err := pgxpool.New(await.Context(t), s.db)
	await.Must(t, err)
	t.Cleanup(pool.Close)
	c := inboxtest.New(t, inbox.Config{Service: "notifier", Pool: pool, Handler: func(context.Context, pgx.Tx, inbox.Message) error { return nil }})
	if got := c.Deliver(first.forInbox()); got.Outcome != inboxtest.Done {
		t.Errorf("the event ends with %+v", got)
	}
	if got := c.Deliver(again.forInbox()); got.Outcome != inboxtest.Duplicate {
		t.Errorf("its repeat ends with %+v", got)
	}
}

// forInbox is a message as inbox/kafka and inbox/rabbit hand it on.
func (m *message) forInbox() inbox.Message {
	of := inbox.Message{ID: m.id, Key: m.key, Payload: m.value, ContentType: m.contentType, Headers: maps.Clone(m.headers), Attempt: 1}
	for _, name := range []string{"id", "eventType", "aggregateType", "aggregate_type", "aggregate_id", "timestamp_in_ms"} {
		delete(of.Headers, name)
	}
	return of
}

// TestEncodedPayloadIsUntouched: what a producer has encoded, as with Avro and the id of a schema
// before it, arrives byte for byte, with its key, its headers and its content type.
func TestEncodedPayloadIsUntouched(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	payloads := []string{avro, "\x00\x00\x00\x01\x08", "\x00" + string(every), string(bytes.Repeat([]byte{0}, 100_000))}
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := open(t)
			more := ""
			if name == "RabbitMQ" {
				more = ", properties: {content_type: mime}"
			}
			s := newStand(t, on, on.sink(more))
			s.config = strings.Replace(s.config, "outbox: {timestamp: at}", "outbox: {timestamp: at, headers: {schema-type: mime}}", 1)
			relay := runner.Start(t, runner.Build(t), s.config)
			await.Must(t, relay.WaitReady(await.Context(t)))
			for i, payload := range payloads {
				s.insert(row{table: "of_bytea", id: fmt.Sprint(i), aggregate: "order", key: "\u00e9 42", kind: "k", mime: "application/vnd.apache.avro", payload: payload})
			}
			for i, m := range on.received(t, len(payloads)) {
				if string(m.value) != payloads[i] || m.key != "\u00e9 42" || m.headers["schema-type"] != "application/vnd.apache.avro" || m.id != fmt.Sprint(i) {
					t.Errorf("message %s has the key %q, the headers %v and the value %q", m.id, m.key, m.headers, m.value)
				}
				if name == "RabbitMQ" && m.contentType != "application/vnd.apache.avro" {
					t.Errorf("message %s has the content type %s", m.id, m.contentType)
				}
			}
		})
	}
}
