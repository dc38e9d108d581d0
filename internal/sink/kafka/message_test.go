package kafka

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// huge is size bytes that take no memory until they are looked at.
func huge(t testing.TB, size int) []byte {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// built is the one record of an event, decoded.
func built(t testing.TB, m *message, ev *outbox.Event) decoded {
	t.Helper()
	if fault := m.build(ev); fault != nil {
		t.Fatal(fault)
	}
	b := newBatch(0)
	b.add(m)
	return decode(t, b.seal(-1, -1, -1)).records[0]
}

func wantHeaders(t rapid.TB, got []protocol.Header, want ...protocol.Header) {
	t.Helper()
	same := func(a, b protocol.Header) bool {
		return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("headers\n%q, want\n%q", got, want)
	}
}

func header(name, value string) protocol.Header {
	return protocol.Header{Key: name, Value: []byte(value)}
}

func TestRecord(t *testing.T) {
	l := layoutOf(t, Config{
		Columns: []string{"tenant", "region"},
		Headers: []HeaderColumn{{"x-tenant", "tenant"}, {"x-region", "region"}},
	})
	ev := someEvent(7, "k1")
	ev.Columns = [][]byte{[]byte("acme"), nil}
	ev.Headers = []byte(`{"a": "t\u00e4xt", "n": 1.50, "ok": true, "no": false, "null": null, "list": [1, {"b": "}"}], "empty": ""}`)
	got := built(t, newMessage(l), ev)
	if string(got.key) != "k1" || string(got.value) != `{"order": 1}` || got.time != 1_700_000_000_007 {
		t.Errorf("key %q, value %q, time %d", got.key, got.value, got.time)
	}
	wantHeaders(t, got.headers,
		header("id", "00000000-0000-4000-8000-000000000007"), header("eventType", "OrderCreated"), header("aggregateType", "order"),
		header("cdc_position", "000000001a2b3c4d-00000007"), header("traceparent", string(ev.Traceparent)),
		header("x-tenant", "acme"),
		header("a", "täxt"), header("n", "1.50"), header("ok", "true"), header("no", "false"), protocol.Header{Key: "null"},
		header("list", `[1, {"b": "}"}]`), header("empty", ""),
	)
}

// TestRecordOfNulls has what is NULL absent, or null where Kafka has a null, and what is empty empty.
func TestRecordOfNulls(t *testing.T) {
	m := newMessage(layoutOf(t, Config{}))
	ev := &outbox.Event{ID: []byte("1"), Time: time.UnixMilli(0)}
	got := built(t, m, ev)
	if got.key != nil || got.value != nil || got.time != 0 {
		t.Errorf("key %q, value %q, time %d", got.key, got.value, got.time)
	}
	wantHeaders(t, got.headers, header("id", "1"), header("cdc_position", "0000000000000000-00000000"))

	ev.Key, ev.Payload, ev.Type, ev.Aggregate, ev.Traceparent = []byte{}, []byte{}, []byte{}, []byte{}, []byte{}
	got = built(t, m, ev)
	if got.key == nil || got.value == nil || len(got.key) > 0 || len(got.value) > 0 {
		t.Errorf("key %q, value %q", got.key, got.value)
	}
	wantHeaders(t, got.headers, header("id", "1"), header("eventType", ""), header("aggregateType", ""),
		header("cdc_position", "0000000000000000-00000000"), header("traceparent", ""))
}

// TestTraceparentOfTheRelay: with a function for it the record carries what that says, and nothing when it says nothing.
func TestTraceparentOfTheRelay(t *testing.T) {
	for row, want := range map[string][]byte{"sampled": []byte("of the span"), "left alone": []byte("left alone"), "none": nil} {
		l := layoutOf(t, Config{Traceparent: func(ev *outbox.Event, buf []byte) []byte {
			switch string(ev.Traceparent) {
			case "sampled":
				return append(buf, "of the span"...)
			case "none":
				return nil
			}
			return ev.Traceparent
		}})
		ev := &outbox.Event{ID: []byte("1"), Time: time.Unix(1, 0), Traceparent: []byte(row)}
		got := built(t, newMessage(l), ev)
		wanted := []protocol.Header{header("id", "1"), header("cdc_position", ev.Position.String())}
		if want != nil {
			wanted = append(wanted, header("traceparent", string(want)))
		}
		wantHeaders(t, got.headers, wanted...)
		if string(ev.Traceparent) != row {
			t.Errorf("the row's traceparent was written to: %q", ev.Traceparent)
		}
	}
}

// TestOwnHeadersWin has keys of the headers column that are somebody's already.
func TestOwnHeadersWin(t *testing.T) {
	var dropped []string
	l := layoutOf(t, Config{
		Columns: []string{"tenant", "region"},
		Headers: []HeaderColumn{{"x-tenant", "tenant"}, {"x-region", "region"}},
		Hooks:   Hooks{HeaderDropped: func(name string) { dropped = append(dropped, name) }},
	})
	ev := someEvent(1, "k")
	ev.Columns = [][]byte{[]byte("acme"), nil}
	ev.Headers = []byte(`{"id": "9", "\u0069d": "9", "x-retry-count": 3, "x-tenant": "other", "x-region": "eu", "tracestate": "a=b", "mine": 1}`)
	ev.Type, ev.Aggregate, ev.Traceparent = nil, nil, nil
	got := built(t, newMessage(l), ev)
	wantHeaders(t, got.headers, header("id", string(ev.ID)), header("cdc_position", ev.Position.String()),
		header("x-tenant", "acme"), header("x-region", "eu"), header("tracestate", "a=b"), header("mine", "1"))
	if want := []string{"id", "id", "x-retry-count"}; !slices.Equal(dropped, want) {
		t.Errorf("dropped %q, want %q", dropped, want)
	}
}

func TestNoRecord(t *testing.T) {
	m := newMessage(layoutOf(t, Config{}))
	for name, c := range map[string]struct {
		change func(*outbox.Event)
		reason sink.Reason
	}{
		"fault":           {func(ev *outbox.Event) { ev.Fault = errors.New("id is NULL") }, sink.Undecodable},
		"headers":         {func(ev *outbox.Event) { ev.Headers = []byte(`[1]`) }, sink.Invalid},
		"broken headers":  {func(ev *outbox.Event) { ev.Headers = []byte(`{"a": "secret`) }, sink.Invalid},
		"before 1970":     {func(ev *outbox.Event) { ev.Time = time.UnixMilli(-1) }, sink.Invalid},
		"large":           {func(ev *outbox.Event) { ev.Payload = huge(t, maxRecord) }, sink.TooLarge},
		"larger than any": {func(ev *outbox.Event) { ev.Payload = huge(t, 1<<31) }, sink.TooLarge},
	} {
		ev := someEvent(1, "k")
		c.change(ev)
		fault := m.build(ev)
		if fault == nil || fault.Class != sink.Permanent || fault.Reason != c.reason || fault.Words == "" || strings.Contains(fault.Words, "secret") {
			t.Errorf("%s: got %v", name, fault)
		}
		if fault := m.build(someEvent(2, "k")); fault != nil {
			t.Errorf("the next event after %s: %v", name, fault)
		}
		m.forget()
	}
}

func TestTopic(t *testing.T) {
	l := layoutOf(t, Config{Topic: template(t, "{aggregate}")})
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
		name, fault := l.topic(&outbox.Event{Aggregate: c.aggregate}, nil)
		if fault != c.want || fault == nil && string(name) != string(c.aggregate) {
			t.Errorf("%q: got %q, %v", c.aggregate, name, fault)
		}
	}
	if _, fault := l.topic(&outbox.Event{Fault: errors.New("id is NULL")}, nil); fault == nil || fault.Reason != sink.Undecodable {
		t.Errorf("an event with a fault: got %v", fault)
	}
	constant := layoutOf(t, Config{Topic: template(t, "events")})
	if name, fault := constant.topic(&outbox.Event{}, nil); fault != nil || string(name) != "events" {
		t.Errorf("got %q, %v", name, fault)
	}
}

// TestTopicAllocates has the reader's goroutine name topics without garbage, also for events that have none.
func TestTopicAllocates(t *testing.T) {
	l := layoutOf(t, Config{Topic: template(t, "outbox.event.{aggregate}")})
	buf := make([]byte, 0, 64)
	for _, ev := range []*outbox.Event{someEvent(1, "k"), {}} {
		if n := testing.AllocsPerRun(100, func() {
			if name, fault := l.topic(ev, buf); (len(name) == 0) != (fault == topicNull) {
				t.Errorf("%q %v", name, fault)
			}
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func TestConfig(t *testing.T) {
	good := Config{Brokers: []string{"localhost:9092", "[::1]:9092"}, Topic: template(t, "{aggregate}")}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no broker":        {func(c *Config) { c.Brokers = nil }, "no broker"},
		"broker":           {func(c *Config) { c.Brokers = []string{"a:1", "user:secret@b"} }, "broker 2 of 2 is not host:port"},
		"port":             {func(c *Config) { c.Brokers = []string{"a:70000"} }, "broker 1 of 1"},
		"no host":          {func(c *Config) { c.Brokers = []string{":9092"} }, "broker 1 of 1"},
		"topic":            {func(c *Config) { c.Topic = template(t, "a b") }, `topic "a b"`},
		"no topic":         {func(c *Config) { c.Topic = sink.Template{} }, "topic name is empty"},
		"own header":       {func(c *Config) { c.Headers = []HeaderColumn{{"cdc_position", "a"}} }, "the relay's own"},
		"nameless header":  {func(c *Config) { c.Headers = []HeaderColumn{{"", "a"}} }, "without a name"},
		"compression":      {func(c *Config) { c.Compression = "brotli" }, `compression "brotli"`},
		"confirm timeout":  {func(c *Config) { c.ConfirmTimeout = 1000 * time.Hour }, "confirm timeout"},
		"nothing is wrong": {func(*Config) {}, ""},
	} {
		cfg := good
		c.change(&cfg)
		cfg.defaults()
		err := cfg.validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	cfg := good
	cfg.Headers = []HeaderColumn{{"x", "missing"}}
	if _, err := newLayout(&cfg); err == nil {
		t.Error("a header of a column that is not read is accepted")
	}
	cfg = good
	cfg.Topic = template(t, "{column:missing}")
	if _, err := newLayout(&cfg); err == nil {
		t.Error("a topic of a column that is not read is accepted")
	}
}
