package record

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
)

// asConnect is a layout by these options.
func asConnect(t testing.TB, options map[string]string) *Layout {
	t.Helper()
	copies, err := NewPlain(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	encoder, topic := kafkatest.ConnectRecords(t, options, copies)
	return layoutOf(t, Config{Encoder: encoder, Topic: topic})
}

// partitionOf is the partition of an event's record.
func partitionOf(l *Layout, ev *event.Event, count int32) int32 {
	var rec sink.Record
	_, _ = l.Place(ev, &rec) // what is wrong with it is another test's
	return Partition(ev, &rec, count)
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
		{"of an empty key", nil, []byte{}, nil, int32(batch.Murmur2(nil)&0x7fffffff) % count},
	} {
		l := asConnect(t, c.options)
		if got := partitionOf(l, kafkatest.OutboxRow(id, []byte("order"), c.key, []byte("p"), c.part), count); got != c.want {
			t.Errorf("%s: partition %d, want %d", c.name, got, c.want)
		}
	}
	// A null key has no order, and is spread by its position; a key that is NULL is the text null
	// in JSON, and has a partition.
	l := asConnect(t, nil)
	seen := map[int32]bool{}
	for n := range uint64(100) {
		ev := kafkatest.OutboxRow(id, []byte("order"), nil, []byte("p"), nil)
		ev.Hash = n
		seen[partitionOf(l, ev, count)] = true
	}
	if len(seen) != count {
		t.Errorf("null keys go to %d partitions of %d", len(seen), count)
	}
	l = asConnect(t, asJSON)
	if record := partitionOf(l, kafkatest.OutboxRow(id, []byte("order"), nil, []byte("p"), nil), count); record != int32(batch.Murmur2([]byte("null"))&0x7fffffff)%count {
		t.Errorf("a NULL key as JSON goes to partition %d", record)
	}
}

// A topic that no event can have is that event's fault; a NULL has none at all.
func TestProfileTopic(t *testing.T) {
	l := asConnect(t, nil)
	if name, fault := l.Place(kafkatest.OutboxRow([]byte("id"), []byte("order"), nil, nil, nil), new(sink.Record)); string(name) != "outbox.event.order" || fault != nil {
		t.Errorf("the topic is %q, %v", name, fault)
	}
	if _, fault := l.Place(kafkatest.OutboxRow([]byte("id"), []byte("a b"), nil, nil, nil), new(sink.Record)); fault != topicChar {
		t.Errorf("a topic with a space: %v", fault)
	}
	if name, fault := l.Place(kafkatest.OutboxRow([]byte("id"), nil, nil, nil, nil), new(sink.Record)); name != nil || fault.Reason != sink.NullInTemplate || fault.Class != sink.Permanent {
		t.Errorf("a NULL route: %q, %v", name, fault)
	}
	if r := l.Route(kafkatest.OutboxRow([]byte("id"), nil, nil, nil, nil)); r.Name != nil {
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
	e := NewBuilder(asConnect(t, nil))
	ev := kafkatest.Event(1, "0123456789")
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
	e := NewBuilder(asConnect(t, nil))
	ev := kafkatest.OutboxRow([]byte("id"), []byte("order"), nil, nil, nil)
	ev.Time = ev.Time.AddDate(-100, 0, 0)
	if fault := e.Build(ev); fault != tooEarly {
		t.Errorf("got %v", fault)
	}
}

// Neither a place nor a record costs anything on the heap.
func TestProfileAllocates(t *testing.T) {
	l := asConnect(t, nil)
	e, ev := NewBuilder(l), kafkatest.OutboxRow([]byte("id"), []byte("order"), []byte("7"), []byte(strings.Repeat("x", 200)), []byte("3"))
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
