package kafka

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// built is the one record of an event, decoded.
func built(t testing.TB, e *builder, ev *event.Event) kafkatest.Decoded {
	t.Helper()
	if fault := e.Build(ev); fault != nil {
		t.Fatal(fault)
	}
	b := kafkaclient.NewBatch(0)
	b.Add(&e.Record)
	return kafkatest.Decode(t, b.Seal(-1, -1, -1)).Records[0]
}

func header(name, value string) protocol.Header {
	return protocol.Header{Key: name, Value: []byte(value)}
}

func TestRecord(t *testing.T) {
	l := layoutOf(t, RecordConfig{PlainConfig: sink.PlainConfig{
		Columns: []string{"tenant", "region"},
		Headers: []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}, {Name: "x-region", Column: "region"}},
	}})
	ev := plainEvent(7, "k1")
	ev.Columns = [][]byte{[]byte("acme"), nil}
	ev.Headers = []byte(`{"a": "t\u00e4xt", "n": 1.50, "ok": true, "no": false, "null": null, "list": [1, {"b": "}"}], "empty": ""}`)
	got := built(t, newBuilder(l), ev)
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
	e := newBuilder(layoutOf(t, RecordConfig{}))
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
		l := layoutOf(t, RecordConfig{PlainConfig: sink.PlainConfig{Traceparent: func(ev *event.Event, buf []byte) []byte {
			switch string(ev.Traceparent) {
			case "sampled":
				return append(buf, "of the span"...)
			case "none":
				return nil
			}
			return ev.Traceparent
		}}})
		ev := &event.Event{ID: []byte("1"), Time: time.Unix(1, 0), Traceparent: []byte(row)}
		got := built(t, newBuilder(l), ev)
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
	l := layoutOf(t, RecordConfig{PlainConfig: sink.PlainConfig{
		Columns:       []string{"tenant", "region"},
		Headers:       []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}, {Name: "x-region", Column: "region"}},
		HeaderDropped: func(name string) { dropped = append(dropped, name) },
	}})
	ev := plainEvent(1, "k")
	ev.Columns = [][]byte{[]byte("acme"), nil}
	ev.Headers = []byte(`{"id": "9", "\u0069d": "9", "x-retry-count": 3, "x-tenant": "other", "x-region": "eu", "tracestate": "a=b", "mine": 1}`)
	ev.Type, ev.Aggregate, ev.Traceparent = nil, nil, nil
	got := built(t, newBuilder(l), ev)
	kafkatest.WantHeaders(t, got.Headers, header("id", string(ev.ID)), header("cdc_position", ev.Position.String()),
		header("x-tenant", "acme"), header("x-region", "eu"), header("tracestate", "a=b"), header("mine", "1"))
	if want := []string{"id", "id", "x-retry-count"}; !slices.Equal(dropped, want) {
		t.Errorf("dropped %q, want %q", dropped, want)
	}
}

func TestNoRecord(t *testing.T) {
	e := newBuilder(layoutOf(t, RecordConfig{}))
	for name, c := range map[string]struct {
		change func(*event.Event)
		reason sink.Reason
	}{
		"fault":           {func(ev *event.Event) { ev.Fault = errors.New("id is NULL") }, sink.Undecodable},
		"headers":         {func(ev *event.Event) { ev.Headers = []byte(`[1]`) }, sink.Invalid},
		"broken headers":  {func(ev *event.Event) { ev.Headers = []byte(`{"a": "secret`) }, sink.Invalid},
		"before 1970":     {func(ev *event.Event) { ev.Time = time.UnixMilli(-1) }, sink.Invalid},
		"large":           {func(ev *event.Event) { ev.Payload = kafkatest.HugeBytes(t, maxRecord) }, sink.TooLarge},
		"larger than any": {func(ev *event.Event) { ev.Payload = kafkatest.HugeBytes(t, 1<<31) }, sink.TooLarge},
	} {
		ev := plainEvent(1, "k")
		c.change(ev)
		fault := e.Build(ev)
		if fault == nil || fault.Class != sink.Permanent || fault.Reason != c.reason || fault.Text == "" || strings.Contains(fault.Text, "secret") {
			t.Errorf("%s: got %v", name, fault)
		}
		if fault := e.Build(plainEvent(2, "k")); fault != nil {
			t.Errorf("the next event after %s: %v", name, fault)
		}
		e.Forget()
	}
}

func TestTopic(t *testing.T) {
	l := layoutOf(t, RecordConfig{Topic: parseTemplate(t, "{aggregate}")})
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
	constant := layoutOf(t, RecordConfig{Topic: parseTemplate(t, "events")})
	if name, fault := constant.Place(&event.Event{}, new(sink.Record)); fault != nil || string(name) != "events" {
		t.Errorf("got %q, %v", name, fault)
	}
	for _, l := range []*layout{l, constant} { // a deferred event goes where it was going
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
	ev := plainEvent(1, "k")
	ev.Type, ev.Aggregate, ev.Traceparent = nil, nil, nil
	ev.Replay, ev.Headers = true, []byte(`{"cdc_replay": "no"}`)
	got := built(t, newBuilder(layoutOf(t, RecordConfig{})), ev)
	kafkatest.WantHeaders(t, got.Headers, header("id", string(ev.ID)), header("cdc_position", ev.Position.String()), header("cdc_replay", "true"))
}

func TestBatchAllocates(t *testing.T) {
	l := layoutOf(t, RecordConfig{PlainConfig: sink.PlainConfig{Columns: []string{"tenant"}, Headers: []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}}}})
	e, b := newBuilder(l), kafkaclient.NewBatch(0)
	ev := plainEvent(1, "key")
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
func layoutOf(t testing.TB, cfg RecordConfig) *layout {
	t.Helper()
	if cfg.Topic.String() == "" {
		cfg.Topic = parseTemplate(t, "events")
	}
	l, err := newLayout(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// reserved reports whether a header is the relay's own.
func reserved(name string) bool {
	return slices.Contains(OwnHeaders, name) || slices.Contains(sink.ReservedHeaders, name)
}

// FuzzHeadersColumn compares the scanner with encoding/json: the same names, the same values, and
// never a panic, and never more than the budget.
func FuzzHeadersColumn(f *testing.F) {
	for _, doc := range []string{
		`{}`, ` { } `, `null`, `[]`, `{"a":1}`, `{"a" : "b\\"c" , "d":[1,{"e":"}"}],"f":{"g":"]"}}`, `{"a":-0.5e3,"b":true,"c":null}`,
		`{"\u00e4":"\ud83d\ude00"}`, `{"a":1}x`, `{"a":{}} `, `{"":""}`, `{"a":1,"a":2}`, `"x"`, `{"a":12345678901234567890}`,
		`{"id":1,"\u0069d":2}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !utf8.Valid(doc) || len(bytes.TrimSpace(doc)) == 0 {
			// PostgreSQL sends none; encoding/json would replace the bytes, which are kept here
			return
		}
		e := newBuilder(layoutOf(t, RecordConfig{}))
		before := bytes.Clone(doc)
		ev := &event.Event{ID: []byte("1"), Time: time.UnixMilli(1), Headers: doc}
		fault := e.Build(ev)
		if !bytes.Equal(doc, before) {
			t.Fatal("the document was written to")
		}
		if most := ev.Budget(); len(e.Headers) > most.Left() {
			t.Fatalf("%d bytes of headers of a row of %d", len(e.Headers), ev.Size())
		}
		if fault != nil && fault.Reason == sink.TooLarge {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(doc, &want); (err != nil) != (fault != nil) {
			t.Fatalf("fault %v, encoding/json %v", fault, err)
		}
		if fault != nil {
			return
		}
		got := map[string][]byte{}
		for _, h := range built(t, e, ev).Headers {
			got[h.Key] = h.Value // of several, the last one: so has encoding/json
		}
		for name, raw := range want {
			value, ok := got[name]
			if reserved(name) {
				continue
			}
			if !ok || (value == nil) != (string(raw) == "null") {
				t.Errorf("%q: got %q, %v, want %s", name, value, ok, raw)
			}
			var s string
			switch {
			case raw[0] == '"' && json.Unmarshal(raw, &s) == nil:
				if string(value) != s {
					t.Errorf("%q: got %q, want %q", name, value, s)
				}
			case value != nil && !bytes.Equal(value, raw):
				t.Errorf("%q: got %q, want %s", name, value, raw)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok && !reserved(name) {
				t.Errorf("%q is from nowhere", name)
			}
		}
	})
}

// Headers that are made to hurt are within the budget of their row, or refused for it, and nothing
// that has grown is kept.
func TestHeadersAreBounded(t *testing.T) {
	e := newBuilder(layoutOf(t, RecordConfig{}))
	for members, reason := range map[int]sink.Reason{90_000: "", 200_000: sink.TooLarge} {
		doc := sinktest.ManyHeaders(members)
		if reason != "" {
			doc = []byte("{" + strings.Repeat(`"":0,`, members) + `"":0}`)
		}
		ev := &event.Event{ID: []byte("1"), Time: time.UnixMilli(1), Headers: doc}
		fault := e.Build(ev)
		if (fault == nil) != (reason == "") || fault != nil && (fault.Reason != reason || fault.Text != event.ErrBytes.Error()) {
			t.Errorf("%d members: %+v", members, fault)
		}
		if most := ev.Budget(); len(e.Headers) > most.Left() {
			t.Errorf("%d members: %d bytes", members, len(e.Headers))
		}
		e.Forget()
		if n := cap(e.Headers) + cap(e.record.Headers) + cap(e.record.Buf); n > 64<<10 {
			t.Errorf("%d members: %d are kept", members, n)
		}
	}
}

// asConnect is a layout by these options.
func asConnect(t testing.TB, options map[string]string) *layout {
	t.Helper()
	copies, err := newPlain(&RecordConfig{})
	if err != nil {
		t.Fatal(err)
	}
	encoder, topic := connectRecords(t, options, copies)
	return layoutOf(t, RecordConfig{Encoder: encoder, Topic: topic})
}

// rowPartition is the partition of an event's record.
func rowPartition(l *layout, ev *event.Event, count int32) int32 {
	var rec sink.Record
	_, _ = l.Place(ev, &rec) // what is wrong with it is another test's
	return PartitionOf(ev, &rec, count)
}

// The record's partition is the row's, or that of the bytes of its key.
func TestProfilePartition(t *testing.T) {
	const count = 12
	id := []byte("id")
	asJSON := map[string]string{"key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false"}
	for _, c := range []struct {
		name      string
		options   map[string]string
		key, part []byte
		want      int32
	}{
		{"of the key", nil, []byte("10711fa5"), nil, 11},
		{"of the key as JSON", asJSON, []byte("10711fa5"), nil, 3},
		{"of the row", nil, []byte("10711fa5"), []byte("7"), 7},
		{"that there is not", nil, []byte("10711fa5"), []byte("12"), 12},
		{"of an empty key", nil, []byte{}, nil, int32(kafkaclient.Murmur2(nil)&0x7fffffff) % count},
	} {
		l := asConnect(t, c.options)
		if got := rowPartition(l, outboxRow(id, []byte("order"), c.key, []byte("p"), c.part), count); got != c.want {
			t.Errorf("%s: partition %d, want %d", c.name, got, c.want)
		}
	}
	// A null key has no order, and is spread by its position; a key that is NULL is the text null
	// in JSON, and has a partition.
	l := asConnect(t, nil)
	seen := map[int32]bool{}
	for n := range uint64(100) {
		ev := outboxRow(id, []byte("order"), nil, []byte("p"), nil)
		ev.Hash = n
		seen[rowPartition(l, ev, count)] = true
	}
	if len(seen) != count {
		t.Errorf("null keys go to %d partitions of %d", len(seen), count)
	}
	l = asConnect(t, asJSON)
	if record := rowPartition(l, outboxRow(id, []byte("order"), nil, []byte("p"), nil), count); record != int32(kafkaclient.Murmur2([]byte("null"))&0x7fffffff)%count {
		t.Errorf("a NULL key as JSON goes to partition %d", record)
	}
}

// A topic that no event can have is that event's fault; a NULL has none at all.
func TestProfileTopic(t *testing.T) {
	l := asConnect(t, nil)
	if name, fault := l.Place(outboxRow([]byte("id"), []byte("order"), nil, nil, nil), new(sink.Record)); string(name) != "outbox.event.order" || fault != nil {
		t.Errorf("the topic is %q, %v", name, fault)
	}
	if _, fault := l.Place(outboxRow([]byte("id"), []byte("a b"), nil, nil, nil), new(sink.Record)); fault != topicChar {
		t.Errorf("a topic with a space: %v", fault)
	}
	if name, fault := l.Place(outboxRow([]byte("id"), nil, nil, nil, nil), new(sink.Record)); name != nil || fault.Reason != sink.NullInTemplate || fault.Class != sink.Permanent {
		t.Errorf("a NULL route: %q, %v", name, fault)
	}
	if r := l.Route(outboxRow([]byte("id"), nil, nil, nil, nil)); r.Name != nil {
		t.Errorf("a NULL route is %q", r.Name)
	}
	// Where the key routes it is not shown.
	personal := asConnect(t, map[string]string{"route.by.field": "aggregateid"})
	if got := personal.Shown("outbox.event.ann"); got != "outbox.event.{key}" {
		t.Errorf("the topic is shown as %s", got)
	}
}

// The copy of a dead letter is the relay's own record.
func TestProfileLeavesCopiesAlone(t *testing.T) {
	e := newBuilder(asConnect(t, nil))
	ev := plainEvent(1, "0123456789")
	ev.Copy, ev.Columns = true, make([][]byte, 1)
	if fault := e.Build(ev); fault != nil {
		t.Fatal(fault)
	}
	if !bytes.Contains(e.Headers, []byte(sink.HeaderPosition)) || !bytes.Equal(e.Value, ev.Payload) {
		t.Errorf("the copy has the headers %q", e.Headers)
	}
}

// A time before 1970 is refused, as in the relay's own records.
func TestProfileTime(t *testing.T) {
	e := newBuilder(asConnect(t, nil))
	ev := outboxRow([]byte("id"), []byte("order"), nil, nil, nil)
	ev.Time = ev.Time.AddDate(-100, 0, 0)
	if fault := e.Build(ev); fault != tooEarly {
		t.Errorf("got %v", fault)
	}
}

// Neither a place nor a record costs anything on the heap.
func TestProfileAllocates(t *testing.T) {
	l := asConnect(t, nil)
	e, ev := newBuilder(l), outboxRow([]byte("id"), []byte("order"), []byte("7"), []byte(strings.Repeat("x", 200)), []byte("3"))
	var placed sink.Record
	if n := testing.AllocsPerRun(100, func() {
		if _, fault := l.Place(ev, &placed); fault != nil {
			t.Fatal(fault)
		}
		if fault := e.Build(ev); fault != nil {
			t.Fatal(fault)
		}
	}); n > 0 {
		t.Errorf("it allocates %g times", n)
	}
}

// TestUnorderedAreSpread has NULL and empty keys on all partitions, and on the same one at every
// delivery.
func TestUnorderedAreSpread(t *testing.T) {
	l := layoutOf(t, RecordConfig{})
	for name, key := range map[string][]byte{"NULL": nil, "empty": {}} {
		var hits [12]int
		for i := range 12_000 {
			ev := plainEvent(i, "")
			ev.Key = key
			p := rowPartition(l, ev, 12)
			if again := rowPartition(l, ev, 12); again != p {
				t.Fatalf("%s: partition %d, then %d", name, p, again)
			}
			hits[p]++
		}
		for p, n := range hits {
			if n < 500 || n > 1500 {
				t.Errorf("%s: %d of 12,000 events on partition %d of 12", name, n, p)
			}
		}
	}
}
