package record

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
)

// built is the one record of an event, decoded.
func built(t testing.TB, e *Builder, ev *event.Event) kafkatest.Decoded {
	t.Helper()
	if fault := e.Build(ev); fault != nil {
		t.Fatal(fault)
	}
	b := batch.New(0)
	b.Add(&e.Record)
	return kafkatest.Decode(t, b.Seal(-1, -1, -1)).Records[0]
}

func header(name, value string) protocol.Header {
	return protocol.Header{Key: name, Value: []byte(value)}
}

func TestRecord(t *testing.T) {
	l := layoutOf(t, Config{PlainConfig: sink.PlainConfig{
		Columns: []string{"tenant", "region"},
		Headers: []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}, {Name: "x-region", Column: "region"}},
	}})
	ev := kafkatest.Event(7, "k1")
	ev.Columns = [][]byte{[]byte("acme"), nil}
	ev.Headers = []byte(`{"a": "t\u00e4xt", "n": 1.50, "ok": true, "no": false, "null": null, "list": [1, {"b": "}"}], "empty": ""}`)
	got := built(t, NewBuilder(l), ev)
	if string(got.Key) != "k1" || string(got.Value) != `{"order": 1}` || got.Time != 1_700_000_000_007 {
		t.Errorf("key %q, value %q, time %d", got.Key, got.Value, got.Time)
	}
	kafkatest.WantHeaders(t, got.Headers,
		header("id", "00000000-0000-4000-8000-000000000007"), header("eventType", "OrderCreated"), header("aggregateType", "order"),
		header("cdc_position", "000000001a2b3c4d-00000007"), header("traceparent", string(ev.Traceparent)),
		header("x-tenant", "acme"),
		header("a", "täxt"), header("n", "1.50"), header("ok", "true"), header("no", "false"), protocol.Header{Key: "null"},
		header("list", `[1, {"b": "}"}]`), header("empty", ""),
	)
}

// TestRecordOfNulls has what is NULL absent, or null where Kafka has a null, and what is empty
// empty.
func TestRecordOfNulls(t *testing.T) {
	e := NewBuilder(layoutOf(t, Config{}))
	ev := &event.Event{ID: []byte("1"), Time: time.UnixMilli(0)}
	got := built(t, e, ev)
	if got.Key != nil || got.Value != nil || got.Time != 0 {
		t.Errorf("key %q, value %q, time %d", got.Key, got.Value, got.Time)
	}
	kafkatest.WantHeaders(t, got.Headers, header("id", "1"), header("cdc_position", "0000000000000000-00000000"))

	ev.Key, ev.Payload, ev.Type, ev.Aggregate, ev.Traceparent = []byte{}, []byte{}, []byte{}, []byte{}, []byte{}
	got = built(t, e, ev)
	if got.Key == nil || got.Value == nil || len(got.Key) > 0 || len(got.Value) > 0 {
		t.Errorf("key %q, value %q", got.Key, got.Value)
	}
	kafkatest.WantHeaders(t, got.Headers, header("id", "1"), header("eventType", ""), header("aggregateType", ""),
		header("cdc_position", "0000000000000000-00000000"), header("traceparent", ""))
}

// TestTraceparentOfTheRelay: with a function for it the record carries what that says, and nothing
// when it says nothing.
func TestTraceparentOfTheRelay(t *testing.T) {
	for row, want := range map[string][]byte{"sampled": []byte("of the span"), "left alone": []byte("left alone"), "none": nil} {
		l := layoutOf(t, Config{PlainConfig: sink.PlainConfig{Traceparent: func(ev *event.Event, buf []byte) []byte {
			switch string(ev.Traceparent) {
			case "sampled":
				return append(buf, "of the span"...)
			case "none":
				return nil
			}
			return ev.Traceparent
		}}})
		ev := &event.Event{ID: []byte("1"), Time: time.Unix(1, 0), Traceparent: []byte(row)}
		got := built(t, NewBuilder(l), ev)
		wanted := []protocol.Header{header("id", "1"), header("cdc_position", ev.Position.String())}
		if want != nil {
			wanted = append(wanted, header("traceparent", string(want)))
		}
		kafkatest.WantHeaders(t, got.Headers, wanted...)
		if string(ev.Traceparent) != row {
			t.Errorf("the row's traceparent was written to: %q", ev.Traceparent)
		}
	}
}

// TestOwnHeadersWin has keys of the headers column that are somebody's already.
func TestOwnHeadersWin(t *testing.T) {
	var dropped []string
	l := layoutOf(t, Config{PlainConfig: sink.PlainConfig{
		Columns:       []string{"tenant", "region"},
		Headers:       []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}, {Name: "x-region", Column: "region"}},
		HeaderDropped: func(name string) { dropped = append(dropped, name) },
	}})
	ev := kafkatest.Event(1, "k")
	ev.Columns = [][]byte{[]byte("acme"), nil}
	ev.Headers = []byte(`{"id": "9", "\u0069d": "9", "x-retry-count": 3, "x-tenant": "other", "x-region": "eu", "tracestate": "a=b", "mine": 1}`)
	ev.Type, ev.Aggregate, ev.Traceparent = nil, nil, nil
	got := built(t, NewBuilder(l), ev)
	kafkatest.WantHeaders(t, got.Headers, header("id", string(ev.ID)), header("cdc_position", ev.Position.String()),
		header("x-tenant", "acme"), header("x-region", "eu"), header("tracestate", "a=b"), header("mine", "1"))
	if want := []string{"id", "id", "x-retry-count"}; !slices.Equal(dropped, want) {
		t.Errorf("dropped %q, want %q", dropped, want)
	}
}

func TestNoRecord(t *testing.T) {
	e := NewBuilder(layoutOf(t, Config{}))
	for name, c := range map[string]struct {
		change func(*event.Event)
		reason sink.Reason
	}{
		"fault":           {func(ev *event.Event) { ev.Fault = errors.New("id is NULL") }, sink.Undecodable},
		"headers":         {func(ev *event.Event) { ev.Headers = []byte(`[1]`) }, sink.Invalid},
		"broken headers":  {func(ev *event.Event) { ev.Headers = []byte(`{"a": "secret`) }, sink.Invalid},
		"before 1970":     {func(ev *event.Event) { ev.Time = time.UnixMilli(-1) }, sink.Invalid},
		"large":           {func(ev *event.Event) { ev.Payload = kafkatest.HugeBytes(t, MaxRecord) }, sink.TooLarge},
		"larger than any": {func(ev *event.Event) { ev.Payload = kafkatest.HugeBytes(t, 1<<31) }, sink.TooLarge},
	} {
		ev := kafkatest.Event(1, "k")
		c.change(ev)
		fault := e.Build(ev)
		if fault == nil || fault.Class != sink.Permanent || fault.Reason != c.reason || fault.Text == "" || strings.Contains(fault.Text, "secret") {
			t.Errorf("%s: got %v", name, fault)
		}
		if fault := e.Build(kafkatest.Event(2, "k")); fault != nil {
			t.Errorf("the next event after %s: %v", name, fault)
		}
		e.Forget()
	}
}

func TestTopic(t *testing.T) {
	l := layoutOf(t, Config{Topic: kafkatest.Template(t, "{aggregate}")})
	for _, c := range []struct {
		aggregate []byte
		want      *sink.Fault
	}{
		{[]byte("order"), nil},
		{[]byte("a.b_c-D9"), nil},
		{[]byte(strings.Repeat("a", 249)), nil},
		{[]byte("..."), nil},
		{nil, topicNull},
		{[]byte{}, topicNone},
		{[]byte("."), topicDots},
		{[]byte(".."), topicDots},
		{[]byte(strings.Repeat("a", 250)), topicLong},
		{[]byte("a b"), topicChar},
		{[]byte("größe"), topicChar},
		{[]byte("a/b"), topicChar},
	} {
		name, fault := l.Place(&event.Event{Aggregate: c.aggregate}, new(sink.Record))
		if fault != c.want || fault == nil && string(name) != string(c.aggregate) {
			t.Errorf("%q: got %q, %v", c.aggregate, name, fault)
		}
	}
	if _, fault := l.Place(&event.Event{Fault: errors.New("id is NULL")}, new(sink.Record)); fault == nil || fault.Reason != sink.Undecodable {
		t.Errorf("an event with a fault: got %v", fault)
	}
	constant := layoutOf(t, Config{Topic: kafkatest.Template(t, "events")})
	if name, fault := constant.Place(&event.Event{}, new(sink.Record)); fault != nil || string(name) != "events" {
		t.Errorf("got %q, %v", name, fault)
	}
	for _, l := range []*Layout{l, constant} { // a deferred event goes where it was going
		if name, fault := l.Place(&event.Event{Route: &event.Route{Name: []byte("former")}}, new(sink.Record)); fault != nil || string(name) != "former" {
			t.Errorf("deferred: got %q, %v", name, fault)
		}
		if _, fault := l.Place(&event.Event{Route: &event.Route{}}, new(sink.Record)); fault != topicNull {
			t.Errorf("deferred without a topic: %v", fault)
		}
	}
}

// A dead letter that is replayed says so.
func TestReplayHeader(t *testing.T) {
	ev := kafkatest.Event(1, "k")
	ev.Type, ev.Aggregate, ev.Traceparent = nil, nil, nil
	ev.Replay, ev.Headers = true, []byte(`{"cdc_replay": "no"}`)
	got := built(t, NewBuilder(layoutOf(t, Config{})), ev)
	kafkatest.WantHeaders(t, got.Headers, header("id", string(ev.ID)), header("cdc_position", ev.Position.String()), header("cdc_replay", "true"))
}

func TestBatchAllocates(t *testing.T) {
	l := layoutOf(t, Config{PlainConfig: sink.PlainConfig{Columns: []string{"tenant"}, Headers: []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}}}})
	e, b := NewBuilder(l), batch.New(0)
	ev := kafkatest.Event(1, "key")
	ev.Columns = [][]byte{[]byte("acme")}
	call := func() {
		b.Reset()
		for range 100 {
			if fault := e.Build(ev); fault != nil {
				t.Fatal(fault)
			}
			b.Add(&e.Record)
		}
		b.Seal(1, 1, 1)
	}
	call()
	if n := testing.AllocsPerRun(100, call); n > 0 {
		t.Errorf("%v allocations for 100 records", n)
	}
	ev.Headers = []byte(`{"source": "web", "attempt": 3}`)
	// encoding/json checks with a scanner from a pool
	if n := testing.AllocsPerRun(100, call); n >= 100 {
		t.Errorf("%v allocations for 100 records with a headers column", n)
	}
}

// layoutOf is the layout of a configuration that is in order.
func layoutOf(t testing.TB, cfg Config) *Layout {
	t.Helper()
	if cfg.Topic.String() == "" {
		cfg.Topic = kafkatest.Template(t, "events")
	}
	l, err := NewLayout(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
