package cloudevents_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
)

// The expectations here are written by the specification. test/cloudevents has the SDK judge what
// real brokers give back.

// plain is a sink's own encoder, which writes one header.
type plain struct {
	contentType string // of every message; "": none
}

func (p plain) Traits() sink.Traits { return sink.Traits{ContentType: p.contentType} }

func (p plain) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.ResetPlace(ev)
	rec.Key = ev.Key
	return nil
}

func (p plain) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	rec.Key, rec.Value, rec.Properties.ContentType = ev.Key, ev.Payload, p.contentType
	rec.AddTextHeader("id", ev.ID)
	return nil
}

var onKafka = &sink.CloudEventsBinding{Prefix: "ce_", ContentType: "content-type"}

var columns = []string{"tenant", "uri", "mime"}

// newEvent is an event with all that an attribute is made of.
func newEvent() *event.Event {
	at := time.Date(2026, 11, 30, 13, 14, 15, 167_000_000, time.FixedZone("", 7200))
	return &event.Event{
		ID: []byte("7d0c"), Aggregate: []byte("order"), Key: []byte("42"), Type: []byte("created"), Time: at, CommitTime: at,
		Payload: []byte(`{"total": 12.50}`), Position: event.Position{Commit: 0x1A2B3C4D, Index: 7},
		Traceparent: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		Columns:     [][]byte{[]byte("acme"), nil, nil},
	}
}

func template(t testing.TB, text string) sink.Template {
	t.Helper()
	made, err := sink.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func settings(t testing.TB, mode string) *cloudevents.Settings {
	t.Helper()
	s := cloudevents.Default()
	s.Mode, s.Source = mode, template(t, "/cdc-relay/shop/public.outbox")
	return &s
}

func encoder(t testing.TB, s *cloudevents.Settings, of sink.Encoder) sink.Encoder {
	t.Helper()
	e, err := s.Encoder(onKafka, columns, of)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// headersOf are a record's headers, one a line.
func headersOf(rec *sink.Record) string {
	var lines strings.Builder
	for _, h := range rec.Headers {
		fmt.Fprintf(&lines, "%s: %s\n", h.Name, h.Value)
	}
	return lines.String()
}

func encoded(t *testing.T, e sink.Encoder, ev *event.Event) *sink.Record {
	t.Helper()
	rec := new(sink.Record)
	if fault := e.Encode(ev, rec); fault != nil {
		t.Fatal(fault)
	}
	return rec
}

func TestBinary(t *testing.T) {
	s := settings(t, cloudevents.Binary)
	s.DataSchema = template(t, "https://schemas.example/{aggregate}.json")
	s.Extensions = []setting.NamedColumn{{Name: "tenant", Column: "tenant"}, {Name: "missing", Column: "uri"}}
	rec := encoded(t, encoder(t, s, plain{}), newEvent())
	const want = `id: 7d0c
ce_specversion: 1.0
ce_id: 7d0c
ce_source: /cdc-relay/shop/public.outbox
ce_type: created
ce_subject: order/42
ce_time: 2026-11-30T11:14:15.167Z
ce_dataschema: https://schemas.example/order.json
ce_traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
ce_partitionkey: 42
ce_sequence: 000000001a2b3c4d-00000007
ce_tenant: acme
content-type: application/json
`
	if got := headersOf(rec); got != want || string(rec.Value) != `{"total": 12.50}` {
		t.Errorf("the record has\n%sand the value %s, want\n%s", got, rec.Value, want)
	}
}

func TestStructured(t *testing.T) {
	s := settings(t, cloudevents.Structured)
	s.DataSchema = template(t, "https://schemas.example/{aggregate}.json")
	s.Extensions = []setting.NamedColumn{{Name: "tenant", Column: "tenant"}, {Name: "missing", Column: "uri"}}
	rec := encoded(t, encoder(t, s, plain{}), newEvent())
	const want = `{"specversion":"1.0","id":"7d0c","source":"/cdc-relay/shop/public.outbox","type":"created","subject":"order/42",` +
		`"time":"2026-11-30T11:14:15.167Z","datacontenttype":"application/json","dataschema":"https://schemas.example/order.json",` +
		`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","partitionkey":"42","sequence":"000000001a2b3c4d-00000007",` +
		`"tenant":"acme","data":{"total": 12.50}}`
	if string(rec.Value) != want {
		t.Errorf("the value is\n%s\nwant\n%s", rec.Value, want)
	}
	if got := headersOf(rec); got != "id: 7d0c\ncontent-type: application/cloudevents+json\n" {
		t.Errorf("the headers are\n%s", got)
	}
}

// On a broker with a property for it no header has the content type.
func TestContentTypeAsProperty(t *testing.T) {
	for mode, want := range map[string]string{cloudevents.Binary: "application/xml", cloudevents.Structured: "application/cloudevents+json"} {
		e, err := settings(t, mode).Encoder(&sink.CloudEventsBinding{Prefix: "cloudEvents:"}, columns, plain{"application/xml"})
		if err != nil {
			t.Fatal(err)
		}
		rec := encoded(t, e, newEvent())
		if rec.Properties.ContentType != want || strings.Contains(headersOf(rec), "content-type") {
			t.Errorf("%s: the property is %s, the headers are\n%s", mode, rec.Properties.ContentType, headersOf(rec))
		}
	}
}

// What an event lacks is absent, and so is a payload that is NULL.
func TestAbsent(t *testing.T) {
	ev := &event.Event{ID: []byte("1"), Type: []byte("t"), Aggregate: []byte("order"), Time: time.Unix(0, 0), Traceparent: []byte("none"), Columns: make([][]byte, 3)}
	s := settings(t, cloudevents.Structured)
	s.DataSchema, s.DataContentType = template(t, "{column:uri}"), template(t, "{column:mime}")
	rec := encoded(t, encoder(t, s, plain{}), ev)
	const want = `{"specversion":"1.0","id":"1","source":"/cdc-relay/shop/public.outbox","type":"t","time":"1970-01-01T00:00:00Z",` +
		`"datacontenttype":"application/json","sequence":"0000000000000000-00000000"}`
	if string(rec.Value) != want {
		t.Errorf("the value is\n%s\nwant\n%s", rec.Value, want)
	}
	s.Mode = cloudevents.Binary
	if rec = encoded(t, encoder(t, s, plain{}), ev); rec.Value != nil {
		t.Errorf("the value is %q, want null", rec.Value)
	}
}

func TestSubject(t *testing.T) {
	for _, c := range []struct{ template, aggregate, key, want string }{
		{"", "order", "42", "order/42"},
		{"", "", "42", "42"},
		{"", "order", "", ""},
		{"", "order", " ", ""},
		{"{type}", "order", "42", "created"},
		{"{column:uri}", "order", "42", ""}, // NULL
		{"", "größe", "日本", "größe/日本"},
	} {
		s := settings(t, cloudevents.Binary)
		s.Subject = template(t, c.template)
		ev := newEvent()
		ev.Aggregate, ev.Key = []byte(c.aggregate), []byte(c.key)
		got := headersOf(encoded(t, encoder(t, s, plain{}), ev))
		if has := strings.Contains(got, "ce_subject: "+c.want+"\n"); has != (c.want != "") || !has && strings.Contains(got, "ce_subject") {
			t.Errorf("%+v:\n%s", c, got)
		}
	}
}

// TestData has how the object holds each kind of payload, by section 3.1.1 of the JSON format.
func TestData(t *testing.T) {
	base64ed := func(payload string) string {
		return `"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(payload)) + `"`
	}
	for _, c := range []struct {
		kind          event.PayloadKind
		mime, payload string
		want          string
	}{
		{event.JSON, "", `[1, "a\u0000b"]`, `"data":[1, "a\u0000b"]`},
		{event.JSON, "", `null`, `"data":null`},
		{event.JSON, "", `"text"`, `"data":"text"`},
		{event.JSON, "application/vnd.shop+json; v=1", `{}`, base64ed(`{}`)},
		{event.JSON, "model/JSON", `{}`, base64ed(`{}`)},
		{event.JSON, "Application/JSON; charset=utf-8", `{}`, `"data":{}`},
		{event.Text, "application/vnd.shop+json", `{}`, base64ed(`{}`)},
		{event.JSON, "application/xml", `{"a"}`, `"data":"{\"a\"}"`},
		{event.Text, "", "a \"b\" \\ \t\n\x00\u0085 日本 </script>", `"data":"a \"b\" \\ \u0009\u000a\u0000` + "\u0085" + ` 日本 </script>"`},
		{event.Text, "", "", `"data":""`},
		{event.Text, "application/json", `{"a": 1}`, `"data":{"a": 1}`},
		{event.Text, "text/json", `{"a": `, base64ed(`{"a": `)},
		{event.Text, "", "\xff", base64ed("\xff")},
		{event.Binary, "", "\x00\x00\x00\x00\x07avro", base64ed("\x00\x00\x00\x00\x07avro")},
		{event.Binary, "application/json", `{}`, base64ed(`{}`)},
		{event.Binary, "", "", `"data_base64":""`},
	} {
		s := settings(t, cloudevents.Structured)
		s.DataContentType = template(t, "{column:mime}")
		ev := newEvent()
		ev.PayloadKind, ev.Payload = c.kind, []byte(c.payload)
		if c.mime != "" {
			ev.Columns[2] = []byte(c.mime)
		}
		rec := encoded(t, encoder(t, s, plain{}), ev)
		if got := string(rec.Value); !strings.HasSuffix(got, ","+c.want+"}") || c.kind != event.JSON && !json.Valid(rec.Value) {
			t.Errorf("%d %s %q: %s\nwant %s", c.kind, c.mime, c.payload, got, c.want)
		}
	}
}

// What has no place in a CloudEvent becomes a dead letter, whose text has nothing of the row.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(s *cloudevents.Settings, ev *event.Event)
		reason sink.Reason
		want   string
	}{
		{"id", func(_ *cloudevents.Settings, ev *event.Event) { ev.ID = []byte{} }, sink.Invalid, "cloudevents id is empty, and every event must have one"},
		{"blank id", func(_ *cloudevents.Settings, ev *event.Event) { ev.ID = []byte(" \u2003") }, sink.Invalid, "cloudevents id is empty, and every event must have one"},
		{"control", func(_ *cloudevents.Settings, ev *event.Event) { ev.ID = []byte("secret\n") }, sink.Invalid, "cloudevents id has a control character or a noncharacter of Unicode, which no attribute may have"},
		{"C1", func(_ *cloudevents.Settings, ev *event.Event) { ev.Key = []byte("secret\u0085x") }, sink.Invalid, "cloudevents subject has a control"},
		{"noncharacter", func(_ *cloudevents.Settings, ev *event.Event) { ev.Type = []byte("secret\ufdd0") }, sink.Invalid, "cloudevents type has a control"},
		{"plane 16", func(s *cloudevents.Settings, ev *event.Event) {
			s.Subject, ev.Key = template(t, "x"), []byte("secret\U0010ffff")
		}, sink.Invalid, "cloudevents partitionkey has a control"},
		{"no UTF-8", func(_ *cloudevents.Settings, ev *event.Event) { ev.ID = []byte("secret\xff") }, sink.Invalid, "cloudevents id has a control"},
		{"type", func(_ *cloudevents.Settings, ev *event.Event) { ev.Type = nil }, sink.NullInTemplate, "cloudevents type has a NULL in its template"},
		{"empty type", func(_ *cloudevents.Settings, ev *event.Event) { ev.Type = []byte{} }, sink.Invalid, "cloudevents type is empty"},
		{"source", func(s *cloudevents.Settings, _ *event.Event) { s.Source = template(t, "/shop/{column:uri}") }, sink.NullInTemplate, "cloudevents source has a NULL in its template"},
		{"source of a row", func(s *cloudevents.Settings, ev *event.Event) {
			s.Source, ev.Columns[1] = template(t, "/shop/{column:uri}"), []byte("secret place")
		}, sink.Invalid, "cloudevents source has a character that a URI must write as %XX"},
		{"no URI", func(s *cloudevents.Settings, ev *event.Event) {
			s.Source, ev.Columns[1] = template(t, "{column:uri}"), []byte("://secret")
		}, sink.Invalid, "cloudevents source is no URI (RFC 3986)"},
		{"schema", func(s *cloudevents.Settings, ev *event.Event) {
			s.DataSchema, ev.Columns[1] = template(t, "{column:uri}"), []byte("/secret")
		}, sink.Invalid, "cloudevents dataschema is no absolute URI, such as https://example.com/schema"},
		{"extension", func(s *cloudevents.Settings, ev *event.Event) {
			s.Extensions, ev.Columns[0] = []setting.NamedColumn{{Name: "tenant", Column: "tenant"}}, []byte("secret\x7f")
		}, sink.Invalid, "cloudevents tenant has a control"},
		{"content type", func(s *cloudevents.Settings, ev *event.Event) {
			s.DataContentType, ev.Columns[2] = template(t, "{column:mime}"), []byte("secret")
		}, sink.Invalid, "cloudevents datacontenttype is no content type, such as application/json (RFC 2046)"},
		{"parameters", func(s *cloudevents.Settings, ev *event.Event) {
			s.DataContentType, ev.Columns[2] = template(t, "{column:mime}"), []byte("text/plain; secret")
		}, sink.Invalid, "cloudevents datacontenttype is no content type, such as application/json (RFC 2046)"},
		{"marker", func(s *cloudevents.Settings, ev *event.Event) {
			s.DataContentType, ev.Columns[2] = template(t, "{column:mime}"), []byte("Application/CloudEvents+json")
		}, sink.Invalid, "cloudevents datacontenttype begins with application/cloudevents, by which consumers know messages in structured mode"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ev := settings(t, cloudevents.Binary), newEvent()
			c.set(s, ev)
			fault := encoder(t, s, plain{}).Encode(ev, new(sink.Record))
			if fault == nil || fault.Class != sink.Permanent || fault.Reason != c.reason || !strings.HasPrefix(fault.Text, c.want) || strings.Contains(fault.Text, "secret") {
				t.Errorf("got %+v, want %s: %s", fault, c.reason, c.want)
			}
		})
	}
}

// The copy of a dead letter, of which there may be no CloudEvent, is the plain encoder's.
func TestCopyOfADeadLetter(t *testing.T) {
	ev := newEvent()
	ev.Copy, ev.Type = true, nil
	rec := encoded(t, encoder(t, settings(t, cloudevents.Structured), plain{}), ev)
	if got := headersOf(rec); got != "id: 7d0c\n" || string(rec.Value) != string(ev.Payload) {
		t.Errorf("the copy has the value %s and the headers\n%s", rec.Value, got)
	}
}

// What is wrong with the configuration is said when the sink is opened.
func TestNotOpened(t *testing.T) {
	s := settings(t, cloudevents.Binary)
	if _, err := s.Encoder(onKafka, columns, plain{"json"}); err == nil || !strings.Contains(err.Error(), "content_type is no content type") {
		t.Errorf("a wrong content_type: %v", err)
	}
	s.Extensions = []setting.NamedColumn{{Name: "tenant", Column: "other"}}
	if _, err := s.Encoder(onKafka, columns, plain{}); err == nil || !strings.Contains(err.Error(), `column "other" is not read`) {
		t.Errorf("an extension: %v", err)
	}
	s.Source = template(t, "/{column:other}")
	if _, err := s.Encoder(onKafka, columns, plain{}); err == nil || !strings.Contains(err.Error(), "cloudevents source") {
		t.Errorf("a source: %v", err)
	}
}

// A repeat is the same message, and a replay has the same attributes and data.
func TestSameBytes(t *testing.T) {
	for _, mode := range []string{cloudevents.Binary, cloudevents.Structured} {
		e, rec, ev := encoder(t, settings(t, mode), plain{}), new(sink.Record), newEvent()
		first := encoded(t, e, ev)
		other := newEvent()
		other.Key, other.Payload = bytes.Repeat([]byte("k"), 10_000), bytes.Repeat([]byte("1"), 100_000)
		if fault := e.Encode(other, rec); fault != nil {
			t.Fatal(fault)
		}
		ev.Replay = true
		if fault := e.Encode(ev, rec); fault != nil {
			t.Fatal(fault)
		}
		if !bytes.Equal(rec.Value, first.Value) || headersOf(rec) != headersOf(first) {
			t.Errorf("%s: the replay has the value %s and the headers\n%swant %s and\n%s", mode, rec.Value, headersOf(rec), first.Value, headersOf(first))
		}
	}
}

// TestAllocations: once a lane's record has grown, the usual event costs no allocation in either
// mode. A content type with parameters and a source of a row are parsed, which costs a few.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		mode  string
		kind  event.PayloadKind
		parse bool
		most  float64
	}{
		{cloudevents.Binary, event.JSON, false, 0},
		{cloudevents.Structured, event.JSON, false, 0},
		{cloudevents.Structured, event.Text, false, 0},
		{cloudevents.Structured, event.Binary, false, 0},
		{cloudevents.Structured, event.JSON, true, 20},
	} {
		s, ev, rec := settings(t, c.mode), newEvent(), new(sink.Record)
		ev.PayloadKind = c.kind
		if c.parse {
			s.Source, s.DataContentType = template(t, "/shop/{aggregate}"), template(t, "{column:mime}")
			ev.Columns[2] = []byte("application/json; charset=utf-8")
		}
		e := encoder(t, s, plain{})
		if n := testing.AllocsPerRun(100, func() {
			if fault := e.Encode(ev, rec); fault != nil {
				t.Fatal(fault)
			}
		}); n > c.most {
			t.Errorf("%+v: an event costs %v allocations", c, n)
		}
	}
}

// TestBudget: what a row would make beyond its budget is refused before it is there.
func TestBudget(t *testing.T) {
	s := settings(t, cloudevents.Structured)
	s.Subject = template(t, strings.Repeat("{key}", 100))
	ev := newEvent()
	ev.Key = bytes.Repeat([]byte("k"), 1<<20)
	rec := new(sink.Record)
	if fault := encoder(t, s, plain{}).Encode(ev, rec); fault == nil || fault.Reason != sink.TooLarge || cap(rec.Buf) > 1<<10 {
		t.Errorf("got %+v, and a buffer of %d bytes", fault, cap(rec.Buf))
	}
	s.Subject = template(t, "")
	// six bytes of JSON each
	ev.Key, ev.PayloadKind, ev.Payload = []byte("1"), event.Text, bytes.Repeat([]byte{1}, 4<<20)
	rec = new(sink.Record)
	if fault := encoder(t, s, plain{}).Encode(ev, rec); fault != nil {
		t.Fatal(fault)
	}
	rec = &sink.Record{Small: true}
	if fault := encoder(t, s, plain{}).Encode(ev, rec); fault == nil || rec.Budget.Err() == nil || cap(rec.Buf) > 1<<10 {
		t.Errorf("with a small budget: %+v, and a buffer of %d bytes", fault, cap(rec.Buf))
	}
}

// FuzzEnvelope: whatever is in a row, the object is JSON that has the payload, or the event is
// refused.
func FuzzEnvelope(f *testing.F) {
	f.Add("1", "created", "42", []byte("a\x00\"\\"), uint8(event.Text))
	f.Add("\u0085", "\ufffe", "\U0001F600", []byte{0xff}, uint8(event.Binary))
	f.Fuzz(func(t *testing.T, id, kind, key string, payload []byte, of uint8) {
		ev := newEvent()
		ev.ID, ev.Type, ev.Key, ev.Payload, ev.PayloadKind = []byte(id), []byte(kind), []byte(key), payload, event.Text+event.PayloadKind(of%2)
		rec := new(sink.Record)
		if encoder(t, settings(t, cloudevents.Structured), plain{}).Encode(ev, rec) != nil {
			return
		}
		var got struct {
			ID, Type, PartitionKey string
			Data                   *string
			Base64                 []byte `json:"data_base64"`
		}
		if err := json.Unmarshal(rec.Value, &got); err != nil || !utf8.Valid(rec.Value) || cap(rec.Value) != len(rec.Value) {
			t.Fatalf("%v: %q", err, rec.Value)
		}
		if strings.TrimSpace(key) == "" {
			key = ""
		}
		data := got.Base64
		if got.Data != nil {
			data = []byte(*got.Data)
		}
		if got.ID != id || got.Type != kind || got.PartitionKey != key || !bytes.Equal(data, payload) {
			t.Errorf("%q", rec.Value)
		}
	})
}
