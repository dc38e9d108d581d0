package kafka

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// asConnect is a layout by these options; the extra columns of its events are part and the shape, in the order of their names.
func asConnect(t testing.TB, options map[string]string) *layout {
	t.Helper()
	all := map[string]string{
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"table.fields.additional.placement": "part:partition",
	}
	for name, value := range options {
		all[name] = value
	}
	records, faults := debezium.Parse(debezium.Connect, all)
	if len(faults) > 0 {
		t.Fatalf("%+v", faults)
	}
	topic, _, _ := records.Templates()
	return layoutOf(t, Config{Profile: records, Columns: records.Columns().Extra, Topic: template(t, topic)})
}

// outboxRow is a row of a table of which no column is NULL but those that are nil.
func outboxRow(id, route, key, payload, part []byte) *outbox.Event {
	ev := someEvent(1, "")
	ev.ID, ev.Aggregate, ev.Key, ev.Payload = id, route, key, payload
	text := func(name string) outbox.ColumnShape {
		return outbox.ColumnShape{Name: name, TypeOID: pgtype.TextOID, Typmod: -1}
	}
	ev.Columns = [][]byte{outbox.AppendShape(nil, &outbox.Shape{Schema: "public", Table: "outbox", Columns: []outbox.ColumnShape{
		text("id"), text("aggregatetype"), text("aggregateid"), text("payload"), {Name: "part", TypeOID: pgtype.Int4OID, Typmod: -1},
	}}), part}
	return ev
}

// The record's partition is the row's, or that of the bytes of its key; a lane is chosen by the key alone, because the order that
// the relay keeps is that of a key.
func TestProfilePartition(t *testing.T) {
	const count = 12
	id := []byte("id")
	for _, c := range []struct {
		name        string
		options     map[string]string
		key, part   []byte
		record, lane int32
	}{
		{"of the key", nil, []byte("10711fa5"), nil, 11, 11},
		{"of the key as JSON", map[string]string{"key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false"}, []byte("10711fa5"), nil, 3, 3},
		{"of the row", nil, []byte("10711fa5"), []byte("7"), 7, 11},
		{"that there is not", nil, []byte("10711fa5"), []byte("12"), 12, 11},
		{"of an empty key", nil, []byte{}, nil, int32(murmur2(nil)&0x7fffffff) % count, int32(murmur2(nil)&0x7fffffff) % count},
	} {
		l := asConnect(t, c.options)
		record, lane := l.partition(outboxRow(id, []byte("order"), c.key, []byte("p"), c.part), count)
		if record != c.record || lane != c.lane {
			t.Errorf("%s: partition %d by lane %d, want %d by %d", c.name, record, lane, c.record, c.lane)
		}
	}
	// A null key has no order, and is spread by its position; a key that is NULL is the text null in JSON, and has a partition.
	l := asConnect(t, nil)
	seen := map[int32]bool{}
	for n := range uint64(100) {
		ev := outboxRow(id, []byte("order"), nil, []byte("p"), nil)
		ev.Hash = n
		record, _ := l.partition(ev, count)
		seen[record] = true
	}
	if len(seen) != count {
		t.Errorf("null keys go to %d partitions of %d", len(seen), count)
	}
	l = asConnect(t, map[string]string{"key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false"})
	if record, _ := l.partition(outboxRow(id, []byte("order"), nil, []byte("p"), nil), count); record != int32(murmur2([]byte("null"))&0x7fffffff)%count {
		t.Errorf("a NULL key as JSON goes to partition %d", record)
	}
}

// A topic that no event can have is that event's fault; a NULL has none at all.
func TestProfileTopic(t *testing.T) {
	l := asConnect(t, nil)
	if name, fault := l.topic(outboxRow([]byte("id"), []byte("order"), nil, nil, nil), nil); string(name) != "outbox.event.order" || fault != nil {
		t.Errorf("the topic is %q, %v", name, fault)
	}
	if _, fault := l.topic(outboxRow([]byte("id"), []byte("a b"), nil, nil, nil), nil); fault != topicChar {
		t.Errorf("a topic with a space: %v", fault)
	}
	if name, fault := l.topic(outboxRow([]byte("id"), nil, nil, nil, nil), nil); name != nil || fault.Reason != sink.NullInTemplate || fault.Class != sink.Permanent {
		t.Errorf("a NULL route: %q, %v", name, fault)
	}
	if r := l.route(outboxRow([]byte("id"), nil, nil, nil, nil)); r.Name != nil {
		t.Errorf("a NULL route is %q", r.Name)
	}
	// Where the key routes it is not shown.
	personal := asConnect(t, map[string]string{"route.by.field": "aggregateid"})
	if got := personal.shown("outbox.event.ann"); got != "outbox.event.{key}" {
		t.Errorf("the topic is shown as %s", got)
	}
}

// The copy of a dead letter is the relay's own record.
func TestProfileLeavesCopiesAlone(t *testing.T) {
	m := newMessage(asConnect(t, nil))
	ev := someEvent(1, "0123456789")
	ev.Copy, ev.Columns = true, make([][]byte, 2)
	if fault := m.build(ev); fault != nil {
		t.Fatal(fault)
	}
	if !bytes.Contains(m.headers, []byte(headerPosition)) || !bytes.Equal(m.value, ev.Payload) {
		t.Errorf("the copy has the headers %q", m.headers)
	}
}

// A time before 1970 is refused, as in the relay's own records.
func TestProfileTime(t *testing.T) {
	m := newMessage(asConnect(t, nil))
	ev := outboxRow([]byte("id"), []byte("order"), nil, nil, nil)
	ev.Time = ev.Time.AddDate(-100, 0, 0)
	if fault := m.build(ev); fault != tooEarly {
		t.Errorf("got %v", fault)
	}
}

// Neither a place nor a record costs anything on the heap.
func TestProfileAllocates(t *testing.T) {
	l := asConnect(t, nil)
	m, ev := newMessage(l), outboxRow([]byte("id"), []byte("order"), []byte("7"), []byte(strings.Repeat("x", 200)), []byte("3"))
	var room [maxTopic]byte
	if n := testing.AllocsPerRun(100, func() {
		if _, fault := l.topic(ev, room[:0]); fault != nil {
			t.Fatal(fault)
		}
		l.partition(ev, 12)
		if fault := m.build(ev); fault != nil {
			t.Fatal(fault)
		}
	}); n > 0 {
		t.Errorf("it allocates %g times", n)
	}
}
