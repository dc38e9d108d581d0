package kafka

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// asConnect is a layout by these options.
func asConnect(t testing.TB, options map[string]string) *layout {
	return layoutOf(t, withProfile(t, options))
}

// withProfile is a configuration by these options; the extra columns of its events are the shape and part.
func withProfile(t testing.TB, options map[string]string) Config {
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
	return Config{Brokers: []string{"1:9092"}, Profile: records, Columns: records.Columns().Extra, Topic: template(t, topic)}
}

// outboxRow is a row of a table of which no column is NULL but those that are nil.
func outboxRow(id, route, key, payload, part []byte) *outbox.Event {
	ev := someEvent(1, "")
	ev.ID, ev.Aggregate, ev.Key, ev.Payload = id, route, key, payload
	ev.Columns = [][]byte{shapeOfRows(false), part}
	return ev
}

// shapeOfRows is that of their table; the key's column may be NOT NULL, which shows in a key with its schema.
func shapeOfRows(notNull bool) []byte {
	text := func(name string, notNull bool) outbox.ColumnShape {
		return outbox.ColumnShape{Name: name, TypeOID: pgtype.TextOID, Typmod: -1, NotNull: notNull}
	}
	return outbox.AppendShape(nil, &outbox.Shape{Schema: "public", Table: "outbox", Columns: []outbox.ColumnShape{
		text("id", false), text("aggregatetype", false), text("aggregateid", notNull), text("payload", false),
		{Name: "part", TypeOID: pgtype.Int4OID, Typmod: -1},
	}})
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
		{"of an empty key", nil, []byte{}, nil, int32(murmur2(nil)&0x7fffffff) % count},
	} {
		l := asConnect(t, c.options)
		if got := l.partition(outboxRow(id, []byte("order"), c.key, []byte("p"), c.part), count); got != c.want {
			t.Errorf("%s: partition %d, want %d", c.name, got, c.want)
		}
	}
	// A null key has no order, and is spread by its position; a key that is NULL is the text null in JSON, and has a partition.
	l := asConnect(t, nil)
	seen := map[int32]bool{}
	for n := range uint64(100) {
		ev := outboxRow(id, []byte("order"), nil, []byte("p"), nil)
		ev.Hash = n
		seen[l.partition(ev, count)] = true
	}
	if len(seen) != count {
		t.Errorf("null keys go to %d partitions of %d", len(seen), count)
	}
	l = asConnect(t, asJSON)
	if record := l.partition(outboxRow(id, []byte("order"), nil, []byte("p"), nil), count); record != int32(murmur2([]byte("null"))&0x7fffffff)%count {
		t.Errorf("a NULL key as JSON goes to partition %d", record)
	}
}

// A key has one lane, whatever record a profile makes of its rows, and if it makes none: what is behind a row that waits is held by
// the lane, and finds it nowhere else.
func TestProfileLaneIsTheKeys(t *testing.T) {
	for name, key := range map[string]string{"text": "storage.StringConverter", "JSON": "json.JsonConverter"} {
		s, err := New(withProfile(t, map[string]string{"key.converter": "org.apache.kafka.connect." + key}))
		must(t, err)
		teach(s, map[string]int{"outbox.event.order": 12})
		lanes := map[int]bool{}
		for n := range 40 {
			row := func(part string) *outbox.Event {
				ev := outboxRow([]byte("id"), []byte("order"), fmt.Append(nil, "key-", n), []byte("p"), nil)
				if part != "" {
					ev.Columns[1] = []byte(part)
				}
				return ev
			}
			place := func(ev *outbox.Event) int {
				p, ok := s.Place(ev)
				if !ok {
					t.Fatal("no place")
				}
				return p.Lane
			}
			altered, shapeless := row(""), row("")
			altered.Columns[0] = shapeOfRows(true)
			shapeless.Columns[0] = nil // parked without a profile
			want := place(row(""))
			lanes[want] = true
			for what, ev := range map[string]*outbox.Event{
				"names a partition": row("7"), "names one that is none": row("-1"), "is of the table before it was altered": altered,
				"cannot be rendered": shapeless,
			} {
				if got := place(ev); got != want {
					t.Errorf("%s, key %d: a row that %s is in lane %d, others in %d", name, n, what, got, want)
				}
			}
		}
		if len(lanes) < 8 {
			t.Errorf("%s: 40 keys are in %d lanes of 12", name, len(lanes))
		}
	}
}

// A partition that was added a moment ago is asked for before a row that names it is refused; one that there is not is refused
// after that. A row that names none costs no question.
func TestProfilePartitionThatIsNew(t *testing.T) {
	inMemory(t, 1, 2, withProfile(t, map[string]string{"route.topic.replacement": "events"}), func(m *memory, r *running) {
		to := func(part string) *outbox.Event {
			n := lastPosition.Add(1)
			ev := outboxRow(fmt.Appendf(nil, "id-%d", n), []byte("order"), []byte("k"), []byte("p"), []byte(part))
			ev.Position.Commit, ev.Ordered, ev.Hash = pglogrepl.LSN(n<<8), true, 7
			return ev
		}
		wantConfirmed(t, r.send(to("0"), to("1")))
		asked := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.metadata
		}
		before := asked()
		wantConfirmed(t, r.send(to("0"), to("1")))
		if now := asked(); now != before {
			t.Errorf("%d questions about partitions that are known", now-before)
		}
		m.change(func() { m.grow("events", 4) })
		wantConfirmed(t, r.send(to("0"), to("3")))
		outcomes := r.send(to("3"), to("4"))
		wantConfirmed(t, outcomes, 1)
		wantRejected(t, outcomes[1], sink.Permanent, sink.Invalid)
	})
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
