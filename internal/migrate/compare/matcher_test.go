package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// event is a message on Kafka as Debezium would send it.
func event(id, key, value string, headers ...Header) Message {
	m := Message{Where: "t, partition 1, offset " + id, Partition: 1, Key: []byte(key), Value: []byte(value), Time: 1000}
	m.Headers = append([]Header{{Name: "__debezium.context.runId", Value: []byte("r" + id)}, {Name: "id", Value: []byte(id)}}, headers...)
	return m
}

func header(name, value string) Header { return Header{Name: name, Value: []byte(value)} }

// compared is what is said of two streams that arrive message by message, theirs first.
func compared(opt Options, theirs, ours []Message) (words []string, m *Matcher) {
	opt.IDHeader, opt.Kafka, opt.Partitions, opt.Remember = "id", true, true, 100
	m = New(opt, func(d Difference) { words = append(words, strings.TrimSpace(d.ID+" "+d.String())) })
	for i := range max(len(theirs), len(ours)) {
		if i < len(theirs) {
			m.Add(Theirs, theirs[i])
		}
		if i < len(ours) {
			m.Add(Ours, ours[i])
		}
	}
	m.Finish(false)
	return words, m
}

// Every kind of difference is found, named, and counted once; equal events have none.
func TestDifferences(t *testing.T) {
	change := func(do func(*Message)) Message {
		m := event("1", "k", `{"a": 1}`, header("type", "created"), header("tenant", "x"))
		do(&m)
		return m
	}
	same := change(func(*Message) {})
	named := func(route, payload string) []byte {
		return fmt.Appendf(nil, `{"schema":{"type":"struct","fields":[{"name":"not.me.Value"}],"optional":false,"name":"shop.public.outbox.%s.Value"},"payload":%s}`, route, payload)
	}
	for _, c := range []struct {
		name         string
		opt          Options
		theirs, ours Message
		want         []string
	}{
		{"equal", Options{Strict: true, Times: true}, same, same, nil},
		{"another run of Debezium", Options{}, same, change(func(m *Message) { m.Headers[0].Value = []byte("other") }), nil},
		{"a header of Debezium's run is missing", Options{}, same, change(func(m *Message) { m.Headers = m.Headers[1:] }), nil},
		{"strictly it is one", Options{Strict: true}, same, change(func(m *Message) { m.Headers = m.Headers[1:] }), []string{`1 header "__debezium.context.runId": only in theirs`}},
		{"topic", Options{}, same, change(func(m *Message) { m.ExchangeOrTopic = 1 }), []string{"1 topic: in topics that do not belong together"}},
		{"partition", Options{}, same, change(func(m *Message) { m.Partition = 2 }), []string{"1 partition: theirs 1, ours 2"}},
		{"key", Options{}, same, change(func(m *Message) { m.Key = []byte(`"k"`) }), []string{"1 key: differs from byte 0 on (theirs 1 bytes, ours 3)"}},
		{"null key", Options{}, same, change(func(m *Message) { m.Key = nil }), []string{"1 key: theirs has 1 bytes, ours is null"}},
		{"value", Options{}, same, change(func(m *Message) { m.Value = []byte(`{"a":1}`) }), []string{"1 value: differs from byte 5 on (theirs 8 bytes, ours 7)"}},
		{"a longer value", Options{}, same, change(func(m *Message) { m.Value = []byte(`{"a": 1}x`) }), []string{"1 value: differs from byte 8 on (theirs 8 bytes, ours 9)"}},
		{
			"excerpts",
			Options{Excerpts: true},
			same, change(func(m *Message) { m.Value = []byte("{\"a\": \x1b}") }),
			[]string{"1 value: differs from byte 6 on (theirs 8 bytes, ours 8)\n    theirs \"{\\\"a\\\": 1}\"\n    ours   \"{\\\"a\\\": \\x1b}\""},
		},
		{"tombstone", Options{}, change(func(m *Message) { m.Value = nil }), change(func(m *Message) { m.Value = []byte("null") }), []string{"1 value: theirs is null, ours has 4 bytes"}},
		{"null is not empty", Options{}, change(func(m *Message) { m.Value = nil }), change(func(m *Message) { m.Value = []byte{} }), []string{"1 value: theirs is null, ours has 0 bytes"}},
		{"header", Options{}, same, change(func(m *Message) { m.Headers[2].Value = []byte("Created") }), []string{`1 header "type": differs from byte 0 on (theirs 7 bytes, ours 7)`}},
		{"null header", Options{}, same, change(func(m *Message) { m.Headers[2].Value = nil }), []string{`1 header "type": theirs has 7 bytes, ours is null`}},
		{"ignored header", Options{Ignore: []string{"type"}}, same, change(func(m *Message) { m.Headers[2].Value = []byte("Created") }), nil},
		{"type of a header", Options{}, same, change(func(m *Message) { m.Headers[2].Kind = "bytes" }), []string{`1 header "type": theirs is of type , ours of type bytes`}},
		{"header of ours", Options{}, same, change(func(m *Message) { m.Headers = append(m.Headers, header("cdc_position", "1")) }), []string{`1 header "cdc_position": only in ours`}},
		{"header of theirs", Options{}, same, change(func(m *Message) { m.Headers = slices.Delete(m.Headers, 2, 3) }), []string{`1 header "type": only in theirs`}},
		{
			"a header twice",
			Options{},
			change(func(m *Message) { m.Headers = append(m.Headers, header("type", "x")) }), change(func(m *Message) { m.Headers = append(m.Headers, header("type", "y")) }),
			[]string{`1 header "type": differs from byte 0 on (theirs 1 bytes, ours 1)`},
		},
		{
			"order of headers",
			Options{},
			same, change(func(m *Message) { m.Headers[2], m.Headers[3] = m.Headers[3], m.Headers[2] }),
			[]string{"1 order of headers: theirs id, type, tenant; ours id, tenant, type"},
		},
		{"routing key", Options{}, same, change(func(m *Message) { m.RoutingKey = "x" }), []string{"1 routing key: differs from byte 0 on (theirs 0 bytes, ours 1)"}},
		{"property", Options{}, same, change(func(m *Message) { m.Properties = []Header{header("content_type", "text/plain")} }), []string{`1 property "content_type": only in ours`}},
		{"time", Options{Times: true}, same, change(func(m *Message) { m.Time = 2000 }), []string{"1 time: theirs 1970-01-01T00:00:01.000Z, ours 1970-01-01T00:00:02.000Z"}},
		{"times are left out", Options{}, same, change(func(m *Message) { m.Time = 2000 }), nil},
		{"name of the value's schema", Options{}, change(func(m *Message) { m.Value = named("order", `1`) }), change(func(m *Message) { m.Value = named("customer", `1`) }), nil},
		{
			"strictly a difference",
			Options{Strict: true},
			change(func(m *Message) { m.Value = named("order", `1`) }), change(func(m *Message) { m.Value = named("ordex", `1`) }),
			[]string{"1 value: differs from byte 110 on (theirs 132 bytes, ours 132)"},
		},
		{
			"the rest is compared",
			Options{},
			change(func(m *Message) { m.Value = named("order", `1`) }), change(func(m *Message) { m.Value = named("customer", `2`) }),
			[]string{"1 value: differs from byte 130 on (theirs 132 bytes, ours 132)"},
		},
		{
			"another name is compared",
			Options{},
			change(func(m *Message) { m.Value = []byte(`{"schema":{"name":"io.debezium.data.Json"},"payload":1}`) }),
			change(func(m *Message) { m.Value = []byte(`{"schema":{"name":"io.debezium.data.Uuid"},"payload":1}`) }),
			[]string{"1 value: differs from byte 36 on (theirs 55 bytes, ours 55)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, m := compared(c.opt, []Message{c.theirs}, []Message{c.ours})
			if !slices.Equal(got, c.want) || m.Total() != int64(len(c.want)) || m.Compared != 1 || m.Equal != one(len(c.want) == 0) {
				t.Errorf("got %q, counts %+v; want %q", got, m.Counts, c.want)
			}
		})
	}
}

// What is left out is counted.
func TestLeftOutIsCounted(t *testing.T) {
	keyless := func(partition int) Message {
		m := event("1", "", "v", header("a", "b"))
		m.Key, m.Partition, m.Time = nil, partition, int64(partition)
		return m
	}
	without := Message{Value: []byte("heartbeat")}
	got, m := compared(Options{Ignore: []string{"a"}}, []Message{keyless(1), without}, []Message{keyless(2)})
	if len(got) > 0 || m.LeftOut != (LeftOut{ContextHeaders: 1, Times: 1, Partitions: 1, Ignored: 1}) || m.NoID != [2]int64{1, 0} {
		t.Errorf("%q, %+v", got, m.Counts)
	}
	got, _ = compared(Options{Strict: true, Ignore: []string{"__debezium.context.runId"}}, []Message{keyless(1), without}, []Message{keyless(2)})
	if !slices.Equal(got, []string{"1 partition: theirs 1, ours 2", "no id: it cannot be paired"}) {
		t.Errorf("strictly: %q", got)
	}
}

func stream(ids string) (out []Message) {
	for _, id := range strings.Fields(ids) {
		out = append(out, event(id, id[:1], "v"))
	}
	return out
}

// Repetitions on either side are no differences, before the counterpart comes and after; what is on
// one side only is one.
func TestDuplicatesAndMissing(t *testing.T) {
	for _, c := range []struct {
		theirs, ours string
		want         []string
		duplicates   [2]int64
	}{
		{"a1 a2 a1 a2 a3", "a1 a2 a3", nil, [2]int64{2, 0}},
		{"a1 a2 a3", "a1 a2 a2 a3 a1", nil, [2]int64{0, 2}}, //nolint:dupword // ids, kinds and names
		{"a1 a1 a1", "a1", nil, [2]int64{2, 0}},             //nolint:dupword // ids, kinds and names
		{"a1 a2 a3", "a1 a3", []string{"a2 missing: only in theirs"}, [2]int64{}},
		{"a1", "b9 a1", []string{"b9 missing: only in ours"}, [2]int64{}},
		{"a1 a2", "a2 a1", []string{`a1 order: in theirs it comes before "a2" of the same key, on the other side after it`}, [2]int64{}},
		{"a1 b1", "b1 a1", nil, [2]int64{}}, // other keys
		{"a2 a1", "a1 a2 a1", []string{`a2 order: in theirs it comes before "a1" of the same key, on the other side after it`}, [2]int64{0, 1}},
	} {
		got, m := compared(Options{}, stream(c.theirs), stream(c.ours))
		if !slices.Equal(got, c.want) || m.Duplicates != c.duplicates {
			t.Errorf("%s | %s: %q, %v again; want %q, %v", c.theirs, c.ours, got, m.Duplicates, c.want, c.duplicates)
		}
	}
}

// An id is one whatever format the header has.
func TestIDs(t *testing.T) {
	for _, text := range []string{"x1", `"x1"`, `{"schema":{"type":"string"},"payload":"x1"}`} {
		m := Message{Headers: []Header{header("id", text)}}
		if id, ok := m.id("id"); id != "x1" || !ok {
			t.Errorf("%s: %q", text, id)
		}
	}
	m := Message{Properties: []Header{header("message_id", "x1")}}
	if id, ok := m.id("id"); id != "x1" || !ok {
		t.Errorf("of the property: %q", id)
	}
	for _, m := range []Message{{}, {Headers: []Header{{Name: "id"}}}} {
		if id, ok := m.id("id"); ok {
			t.Errorf("%+v has the id %q", m, id)
		}
	}
}

// What came early, or after the end, is no difference alone; with its counterpart it is compared
// all the same.
func TestEdges(t *testing.T) {
	var words []string
	m := New(Options{IDHeader: "id", Kafka: true, Remember: 10}, func(d Difference) { words = append(words, d.ID+" "+d.String()) })
	early := func(id, value string) Message {
		e := event(id, "k", value)
		e.Early = true
		return e
	}
	m.Add(Ours, early("1", "v"))
	m.Add(Ours, early("2", "v"))
	m.Add(Theirs, event("2", "k", "w"))
	m.Add(Theirs, event("3", "k", "v"))
	m.End()
	m.Add(Ours, event("4", "k", "v"))
	m.Add(Ours, event("3", "k", "v"))
	m.Finish(false)
	if !slices.Equal(words, []string{"2 value: differs from byte 0 on (theirs 1 bytes, ours 1)"}) || m.AtTheEdge != [2]int64{0, 2} || m.Compared != 2 {
		t.Errorf("%q, %+v", words, m.Counts)
	}
}

// Cut short, nothing is said of what still waits.
func TestCutShort(t *testing.T) {
	m := New(Options{IDHeader: "id"}, func(d Difference) { t.Errorf("%+v", d) })
	m.Add(Theirs, event("1", "k", "v"))
	m.Finish(true)
	if m.AtTheEdge != [2]int64{1, 0} {
		t.Errorf("%+v", m.Counts)
	}
}

// What waits is counted in bytes, and the oldest can be given up. Nothing of it is kept then.
func TestHeldIsBounded(t *testing.T) {
	var words []string
	m := New(Options{IDHeader: "id", Kafka: true, Remember: 3}, func(d Difference) { words = append(words, d.ID+" "+d.String()) })
	for i := range 5 {
		m.Add(Theirs, event(fmt.Sprint(i), fmt.Sprint("k", i), strings.Repeat("x", 1<<20)))
	}
	if n, bytes := m.Waiting(Theirs); n != 5 || bytes < 5<<20 || bytes > 6<<20 {
		t.Errorf("%d held, %d bytes", n, bytes)
	}
	for range 6 {
		m.GiveUp(Theirs)
	}
	if n, bytes := m.Waiting(Theirs); n != 0 || bytes != 0 || len(m.orders) != 0 || len(m.waiting[Theirs]) != 0 {
		t.Errorf("%d held, %d bytes, %d ordering groups", n, bytes, len(m.orders))
	}
	if len(words) != 5 || words[0] != "0 missing: only in theirs" || m.GivenUp != [2]int64{5, 0} {
		t.Errorf("%q, %+v", words, m.Counts)
	}
	for i := range 10 {
		m.Add(Theirs, event(fmt.Sprint("n", i), "k", ""))
		m.Add(Ours, event(fmt.Sprint("n", i), "k", ""))
	}
	if ids := len(m.seen.newest) + len(m.seen.older); ids < 3 || ids > 6 || len(m.orders) != 0 {
		t.Errorf("%d ids are remembered, %d ordering groups", ids, len(m.orders))
	}
	m.Add(Theirs, event("n9", "k", ""))
	m.Add(Theirs, event("n0", "k", ""))
	if n, _ := m.Waiting(Theirs); n != 1 || m.Duplicates != [2]int64{1, 0} {
		t.Errorf("the last id is not known again, or one that was forgotten is: %+v", m.Counts)
	}
}

// Against the obvious way: an ordering group is out of order exactly when two of its events that
// both sides have stand in different orders.
func TestOrderAgainstDumb(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.Permutation(strings.Fields("a1 a2 a3 b1 b2 b3"))
		var sides [2][]string
		for side := range sides {
			sides[side] = ids.Draw(t, "ids")
			if rapid.Bool().Draw(t, "agree") {
				slices.Sort(sides[side])
			}
			sides[side] = sides[side][:rapid.IntRange(0, 6).Draw(t, "length")]
		}
		want := map[string]bool{}
		for i, first := range sides[0] {
			for _, second := range sides[0][i+1:] {
				one, other := slices.Index(sides[1], first), slices.Index(sides[1], second)
				if first[0] == second[0] && one >= 0 && other >= 0 && other < one {
					want[first[:1]] = true
				}
			}
		}
		got := map[string]bool{}
		m := New(Options{IDHeader: "id", Kafka: true, Remember: 100}, func(d Difference) {
			if d.Kind == KindOrder {
				got[d.ID[:1]] = true
			}
		})
		rest := sides
		for len(rest[0])+len(rest[1]) > 0 {
			side := rapid.IntRange(0, 1).Draw(t, "side")
			if len(rest[side]) == 0 {
				side = 1 - side
			}
			id := rest[side][0]
			m.Add(Side(side), event(id, id[:1], "v"))
			rest[side] = rest[side][1:]
		}
		m.Finish(false)
		if fmt.Sprint(got) != fmt.Sprint(want) || len(m.orders) != 0 {
			t.Fatalf("%v: out of order are %v, want %v; %d ordering groups are left", sides, got, want, len(m.orders))
		}
	})
}

// FuzzSchemaName: any bytes, no panic, and the name is a part of the value.
func FuzzSchemaName(f *testing.F) {
	f.Add([]byte(`{"schema":{"type":"struct","name":"a.Value"},"payload":{}}`))
	f.Add([]byte(`{"schema":{"name" : "a.Value"`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if s, ok := valueSchemaName(value); ok && !bytes.HasSuffix(value[s.from:s.to], []byte(`.Value"`)) {
			t.Fatalf("%q: %q", value, value[s.from:s.to])
		}
	})
}
