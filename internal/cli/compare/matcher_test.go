package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
)

// sent is a message on Kafka as Debezium would send it.
func sent(id, key, value string, headers ...header) message {
	m := message{where: "t, partition 1, offset " + id, partition: 1, key: []byte(key), value: []byte(value)}
	m.headers = append([]header{{name: "__debezium.context.runId", value: []byte("r" + id)}, {name: "id", value: []byte(id)}}, headers...)
	return m
}

func head(name, value string) header { return header{name: name, value: []byte(value)} }

// fresh is a matcher of Kafka's records.
func fresh(opt matcher, report func(difference)) *matcher {
	opt.idHeader, opt.kafka, opt.report, opt.events, opt.Differences = "id", true, report, map[string]*pair{}, map[string]int64{}
	return &opt
}

// compared is what is said of two streams that arrive message by message, theirs first.
func compared(opt matcher, theirsSent, oursSent []message) (words []string, m *matcher) {
	m = fresh(opt, func(d difference) { words = append(words, strings.TrimSpace(d.ID+" "+d.String())) })
	for i := range max(len(theirsSent), len(oursSent)) {
		if i < len(theirsSent) {
			m.add(theirs, theirsSent[i])
		}
		if i < len(oursSent) {
			m.add(ours, oursSent[i])
		}
	}
	m.finish(false)
	return words, m
}

// Every kind of difference is found, named, and counted once; equal events have none.
func TestDifferences(t *testing.T) {
	change := func(do func(*message)) message {
		m := sent("1", "k", `{"a": 1}`, head("type", "created"), head("tenant", "x"))
		do(&m)
		return m
	}
	same := change(func(*message) {})
	named := func(route, payload string) []byte {
		return fmt.Appendf(nil, `{"schema":{"type":"struct","fields":[{"name":"not.me.Value"}],"optional":false,"name":"shop.public.outbox.%s.Value"},"payload":%s}`, route, payload)
	}
	for _, c := range []struct {
		name         string
		opt          matcher
		theirs, ours message
		want         []string
	}{
		{"equal", matcher{}, same, same, nil},
		{"another run of Debezium", matcher{}, same, change(func(m *message) { m.headers[0].value = []byte("other") }), nil},
		{"a header of Debezium's run is missing", matcher{}, same, change(func(m *message) { m.headers = m.headers[1:] }), nil},
		{"partition", matcher{}, same, change(func(m *message) { m.partition = 2 }), []string{"1 partition: theirs 1, ours 2"}},
		{"key", matcher{}, same, change(func(m *message) { m.key = []byte(`"k"`) }), []string{"1 key: differs from byte 0 on (theirs 1 bytes, ours 3)"}},
		{"null key", matcher{}, same, change(func(m *message) { m.key = nil }), []string{"1 key: theirs has 1 bytes, ours is null"}},
		{"value", matcher{}, same, change(func(m *message) { m.value = []byte(`{"a":1}`) }), []string{"1 value: differs from byte 5 on (theirs 8 bytes, ours 7)"}},
		{"a longer value", matcher{}, same, change(func(m *message) { m.value = []byte(`{"a": 1}x`) }), []string{"1 value: differs from byte 8 on (theirs 8 bytes, ours 9)"}},
		{
			"excerpts",
			matcher{excerpts: true},
			same, change(func(m *message) { m.value = []byte("{\"a\": \x1b}") }),
			[]string{"1 value: differs from byte 6 on (theirs 8 bytes, ours 8)\n    theirs \"{\\\"a\\\": 1}\"\n    ours   \"{\\\"a\\\": \\x1b}\""},
		},
		{"tombstone", matcher{}, change(func(m *message) { m.value = nil }), change(func(m *message) { m.value = []byte("null") }), []string{"1 value: theirs is null, ours has 4 bytes"}},
		{"null is not empty", matcher{}, change(func(m *message) { m.value = nil }), change(func(m *message) { m.value = []byte{} }), []string{"1 value: theirs is null, ours has 0 bytes"}},
		{"header", matcher{}, same, change(func(m *message) { m.headers[2].value = []byte("Created") }), []string{`1 header "type": differs from byte 0 on (theirs 7 bytes, ours 7)`}},
		{"null header", matcher{}, same, change(func(m *message) { m.headers[2].value = nil }), []string{`1 header "type": theirs has 7 bytes, ours is null`}},
		{"ignored header", matcher{ignore: []string{"type"}}, same, change(func(m *message) { m.headers[2].value = []byte("Created") }), nil},
		{"type of a header", matcher{}, same, change(func(m *message) { m.headers[2].kind = "bytes" }), []string{`1 header "type": theirs is of type , ours of type bytes`}},
		{"header of ours", matcher{}, same, change(func(m *message) { m.headers = append(m.headers, head("cdc_position", "1")) }), []string{`1 header "cdc_position": only in ours`}},
		{"header of theirs", matcher{}, same, change(func(m *message) { m.headers = slices.Delete(m.headers, 2, 3) }), []string{`1 header "type": only in theirs`}},
		{
			"a header twice",
			matcher{},
			change(func(m *message) { m.headers = append(m.headers, head("type", "x")) }), change(func(m *message) { m.headers = append(m.headers, head("type", "y")) }),
			[]string{`1 header "type": differs from byte 0 on (theirs 1 bytes, ours 1)`},
		},
		{
			"order of headers",
			matcher{},
			same, change(func(m *message) { m.headers[2], m.headers[3] = m.headers[3], m.headers[2] }),
			[]string{"1 order of headers: theirs id, type, tenant; ours id, tenant, type"},
		},
		{"routing key", matcher{}, same, change(func(m *message) { m.routingKey = "x" }), []string{"1 routing key: differs from byte 0 on (theirs 0 bytes, ours 1)"}},
		{"property", matcher{}, same, change(func(m *message) { m.properties = []header{head("content_type", "text/plain")} }), []string{`1 property "content_type": only in ours`}},
		{"name of the value's schema", matcher{}, change(func(m *message) { m.value = named("order", `1`) }), change(func(m *message) { m.value = named("customer", `1`) }), nil},
		{
			"the rest is compared",
			matcher{},
			change(func(m *message) { m.value = named("order", `1`) }), change(func(m *message) { m.value = named("customer", `2`) }),
			[]string{"1 value: differs from byte 130 on (theirs 132 bytes, ours 132)"},
		},
		{
			"another name is compared",
			matcher{},
			change(func(m *message) { m.value = []byte(`{"schema":{"name":"io.debezium.data.Json"},"payload":1}`) }),
			change(func(m *message) { m.value = []byte(`{"schema":{"name":"io.debezium.data.Uuid"},"payload":1}`) }),
			[]string{"1 value: differs from byte 36 on (theirs 55 bytes, ours 55)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, m := compared(c.opt, []message{c.theirs}, []message{c.ours})
			if !slices.Equal(got, c.want) || m.total() != int64(len(c.want)) || m.Compared != 1 || m.Equal != one(len(c.want) == 0) {
				t.Errorf("got %q, counts %+v; want %q", got, m.counts, c.want)
			}
		})
	}
}

// The partition of a record without a key and an ignored header are no difference, and a message
// without an id is counted.
func TestNotCompared(t *testing.T) {
	keyless := func(partition int) message {
		m := sent("1", "", "v", head("a", "b"))
		m.key, m.partition = nil, partition
		return m
	}
	without := message{value: []byte("heartbeat")}
	got, m := compared(matcher{ignore: []string{"a"}}, []message{keyless(1), without}, []message{keyless(2)})
	if len(got) > 0 || m.Equal != 1 || m.NoID != [2]int64{1, 0} {
		t.Errorf("%q, %+v", got, m.counts)
	}
}

func stream(ids string) (out []message) {
	for _, id := range strings.Fields(ids) {
		out = append(out, sent(id, id[:1], "v"))
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
		{"a1 a2", "a2 a1", []string{`a2 order: in ours it comes before "a1" of the same key, in theirs after it`}, [2]int64{}},
		{"a1 b1", "b1 a1", nil, [2]int64{}}, // other keys
		{"a2 a1", "a1 a2 a1", []string{`a1 order: in ours it comes before "a2" of the same key, in theirs after it`}, [2]int64{0, 1}},
	} {
		got, m := compared(matcher{}, stream(c.theirs), stream(c.ours))
		if !slices.Equal(got, c.want) || m.Duplicates != c.duplicates {
			t.Errorf("%s | %s: %q, %v again; want %q, %v", c.theirs, c.ours, got, m.Duplicates, c.want, c.duplicates)
		}
	}
}

// An id is one whatever format the header has.
func TestIDs(t *testing.T) {
	for _, text := range []string{"x1", `"x1"`, `{"schema":{"type":"string"},"payload":"x1"}`} {
		m := message{headers: []header{head("id", text)}}
		if id, ok := m.id("id"); id != "x1" || !ok {
			t.Errorf("%s: %q", text, id)
		}
	}
	m := message{properties: []header{head("message_id", "x1")}}
	if id, ok := m.id("id"); id != "x1" || !ok {
		t.Errorf("of the property: %q", id)
	}
	for _, m := range []message{{}, {headers: []header{{name: "id"}}}} {
		if id, ok := m.id("id"); ok {
			t.Errorf("%+v has the id %q", m, id)
		}
	}
}

// What came early, or after the end, is no difference alone; with its counterpart it is compared
// all the same.
func TestEdges(t *testing.T) {
	var words []string
	m := fresh(matcher{}, func(d difference) { words = append(words, d.ID+" "+d.String()) })
	edge := func(id, value string) message {
		e := sent(id, "k", value)
		e.atTheEdge = true
		return e
	}
	m.add(ours, edge("1", "v"))
	m.add(ours, edge("2", "v"))
	m.add(theirs, sent("2", "k", "w"))
	m.add(theirs, sent("3", "k", "v"))
	m.add(ours, edge("4", "v"))
	m.add(ours, edge("3", "v"))
	m.finish(false)
	if !slices.Equal(words, []string{"2 value: differs from byte 0 on (theirs 1 bytes, ours 1)"}) || m.AtTheEdge != [2]int64{0, 2} || m.Compared != 2 {
		t.Errorf("%q, %+v", words, m.counts)
	}
}

// Cut short, nothing is said of what still waits.
func TestCutShort(t *testing.T) {
	m := fresh(matcher{}, func(d difference) { t.Errorf("%+v", d) })
	m.add(theirs, sent("1", "k", "v"))
	m.finish(true)
	if m.AtTheEdge != [2]int64{1, 0} {
		t.Errorf("%+v", m.counts)
	}
}

// What waits is counted in bytes. Nothing of a message is kept once it is paired.
func TestHeldIsBounded(t *testing.T) {
	m := fresh(matcher{}, func(d difference) { t.Errorf("%+v", d) })
	for _, side := range []int{theirs, ours} {
		for i := range 5 {
			m.add(side, sent(fmt.Sprint(i), fmt.Sprint("k", i), strings.Repeat("x", 1<<20)))
		}
		if bytes := m.waiting[theirs]; side == theirs && (bytes < 5<<20 || bytes > 6<<20) {
			t.Errorf("%d bytes wait", bytes)
		}
	}
	if m.waiting != [2]int{} || m.Compared != 5 {
		t.Errorf("%d bytes wait, %+v", m.waiting, m.counts)
	}
	for _, p := range m.events {
		if p.m != [2]*message{} {
			t.Errorf("%+v is kept", p)
		}
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
		m := fresh(matcher{}, func(d difference) {
			if d.Kind == "order" {
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
			m.add(side, sent(id, id[:1], "v"))
			rest[side] = rest[side][1:]
		}
		m.finish(false)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v: out of order are %v, want %v", sides, got, want)
		}
	})
}

// FuzzSchemaName: any bytes, no panic, and nothing but the name of the schema is replaced.
func FuzzSchemaName(f *testing.F) {
	f.Add([]byte(`{"schema":{"type":"struct","name":"a.Value"},"payload":{}}`))
	f.Add([]byte(`{"schema":{"name" : "a.Value"`))
	other := []byte(`{"schema":{"name":"theirs.Value"},"payload":1}`)
	f.Fuzz(func(t *testing.T, value []byte) {
		if got := sameSchema(other, value); !bytes.Equal(got, value) && !bytes.Contains(got, []byte(`"name":"theirs.Value"`)) {
			t.Fatalf("%q: %q", value, got)
		}
	})
}

// Flags that contradict each other, or the sink.
func TestFlags(t *testing.T) {
	kafka, rabbit := &config.Config{Sink: config.Sink{Settings: new(kafka.Settings)}}, &config.Config{Sink: config.Sink{Settings: new(rabbit.Settings)}}
	for _, c := range []struct {
		config *config.Config
		flags  compareFlags
		want   string
	}{
		{&config.Config{}, compareFlags{theirs: "a", ours: "b"}, "neither Kafka nor RabbitMQ"},
		{kafka, compareFlags{theirs: "a", ours: "a"}, "two topics or exchanges"},
		{kafka, compareFlags{theirs: "a"}, "two topics or exchanges"},
		{kafka, compareFlags{theirs: "a", ours: "b"}, "--lag must be above 0"},
		{kafka, compareFlags{theirs: "a", ours: "b", lag: 1, from: "yesterday"}, "want now or beginning"},
		{rabbit, compareFlags{theirs: "a", ours: "b", lag: 1, from: "beginning"}, "use --from now"},
	} {
		if err := c.flags.validate(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.flags, err, c.want)
		}
	}
}

// A comparison that ends before its --count is no proof.
func TestCountThatIsNotReached(t *testing.T) {
	var out, errs bytes.Buffer
	r := &comparison{f: &compareFlags{count: 2}, out: &out, errs: &errs}
	r.matcher.Compared = 1
	if err := r.report(false, nil); err == nil || !strings.Contains(err.Error(), "1 compared event in place of 2") {
		t.Errorf("one of two: %v", err)
	}
	r.matcher.Compared = 2
	if err := r.report(false, nil); err != nil {
		t.Errorf("two of two: %v", err)
	}
}
