// The matcher of a comparison: it pairs messages by the event's id, in whatever order the two sides
// send them, and finds what differs, field by field. It does no I/O and reads no clock, so that
// tests need no broker.

package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// sideName has the names of the two sides. In all arrays here, theirs is 0 and ours is 1.
var sideName = [2]string{"theirs", "ours"}

// The places of the two sides in arrays.
const theirs, ours = 0, 1

// message is a message as it lay at the broker. The matcher keeps it, so its bytes must not change.
type message struct {
	where      string // for people: "shop.order, partition 2, offset 17"
	partition  int    // 0 for a broker without partitions
	routingKey string
	key, value []byte // nil is null
	headers    []header
	properties []header // the properties of an AMQP message that are set, sorted
	// atTheEdge says that its counterpart may have been sent before the comparison began or after
	// it ended. Without a counterpart it is no difference.
	atTheEdge bool
}

// header is a header of a message, or a property.
type header struct {
	name string
	// kind is its type, where the protocol has types: "text" and "bytes" are not the same to a
	// consumer.
	kind  string
	value []byte // nil is null
}

// size returns about how many bytes of memory the message takes.
func (m *message) size() int {
	const fixed, each = 256, 64
	n := fixed + len(m.where) + len(m.routingKey) + len(m.key) + len(m.value)
	for _, h := range m.headers {
		n += each + len(h.name) + len(h.value)
	}
	return n
}

// id returns the event's id: that of the header or, without the header, of the property message_id,
// where cdc-relay has it without a profile. Debezium Server may write a header as JSON:
// {"schema":…,"payload":"x"} and "x" mean the id x, so that two formats are a difference of the
// header, and not two events.
func (m *message) id(name string) (string, bool) {
	at, list := slices.IndexFunc(m.headers, func(h header) bool { return h.name == name }), m.headers
	if at < 0 {
		at, list = slices.IndexFunc(m.properties, func(h header) bool { return h.name == "message_id" }), m.properties
	}
	if at < 0 || list[at].value == nil {
		return "", false
	}
	text := list[at].value
	var wrapped struct{ Payload json.RawMessage }
	if bytes.HasPrefix(text, []byte(`{"schema":`)) && json.Unmarshal(text, &wrapped) == nil && wrapped.Payload != nil {
		text = wrapped.Payload
	}
	var s string
	if bytes.HasPrefix(text, []byte(`"`)) && json.Unmarshal(text, &s) == nil {
		return s, true
	}
	return string(text), true
}

// counts are the results so far. Arrays have a value for each side.
type counts struct {
	Compared    int64            `json:"compared"` // pairs
	Equal       int64            `json:"equal"`    // pairs that are equal; their order may differ
	Differences map[string]int64 `json:"differences"`
	Events      [2]int64         `json:"messages"` // messages with an id, including repeated ones
	Duplicates  [2]int64         `json:"duplicates"`
	NoID        [2]int64         `json:"without_id"` // messages that are not compared
	// messages without a counterpart at the beginning or the end
	AtTheEdge [2]int64 `json:"not_counted"`
}

// total is the number of differences.
func (c *counts) total() (n int64) {
	for _, one := range c.Differences {
		n += one
	}
	return n
}

// matcher pairs the messages of both sides. Only one goroutine may use it.
type matcher struct {
	counts
	idHeader string   // the header by which messages are paired
	ignore   []string // headers that are not compared
	kafka    bool     // on Kafka the order of headers counts, and events are grouped by key
	excerpts bool
	report   func(difference)

	events  map[string]*pair
	number  [2]int64 // messages so far
	waiting [2]int   // bytes of messages that wait for their counterparts
}

// pair is an event of which at least one side has sent a message.
type pair struct {
	id     string
	m      [2]*message // nil when it was not sent, or was compared already
	number [2]int64    // 0 when it was not sent
	group  string      // the key, within which the order is compared
	loose  bool        // it has no key, or another one on each side
}

// add takes the next message of a side. It compares the event once both sides have sent it.
func (x *matcher) add(side int, m message) {
	id, ok := m.id(x.idHeader)
	if !ok {
		x.NoID[side]++
		return
	}
	x.Events[side]++
	x.number[side]++
	p := x.events[id]
	if p != nil && p.number[side] > 0 {
		x.Duplicates[side]++
		return
	}
	group, loose := m.routingKey, false
	if x.kafka {
		group, loose = string(m.key), m.key == nil
	}
	if p == nil {
		p = &pair{id: id, group: group, loose: loose}
		p.m[side], p.number[side] = &m, x.number[side]
		x.events[id] = p
		x.waiting[side] += m.size()
		return
	}
	p.m[side], p.number[side], p.loose = &m, x.number[side], p.loose || loose || p.group != group
	before := x.total()
	x.compare(p)
	x.Compared++
	x.Equal += one(x.total() == before)
	x.waiting[1-side] -= p.m[1-side].size()
	p.m = [2]*message{}
}

// finish reports events without a counterpart, and pairs that stand in another order than an
// earlier pair of their key. When the comparison was cut short, it reports nothing of events
// without a counterpart, which may have been on its way.
func (x *matcher) finish(cut bool) {
	all := slices.SortedFunc(maps.Values(x.events), func(p, q *pair) int {
		return cmp.Or(cmp.Compare(p.number[theirs], q.number[theirs]), cmp.Compare(p.number[ours], q.number[ours]))
	})
	last := map[string]*pair{} // of each key, the pair that our side has sent last
	for _, p := range all {
		switch before := last[p.group]; {
		case p.number[theirs] == 0 || p.number[ours] == 0:
			side := int(one(p.number[theirs] == 0))
			if cut || p.m[side].atTheEdge {
				x.AtTheEdge[side]++
				continue
			}
			d := difference{Kind: "missing", ID: p.id, Only: sideName[side], Text: "only in " + sideName[side]}
			d.Where[side] = p.m[side].where
			x.found(d)
		case p.loose:
		case before != nil && before.number[ours] > p.number[ours]:
			x.found(difference{Kind: "order", ID: p.id, Text: fmt.Sprintf("in ours it comes before %q of the same key, in theirs after it", before.id)})
		default:
			last[p.group] = p
		}
	}
}

// difference is one thing that differs between the two sides.
type difference struct {
	Kind  string    `json:"kind"` // "missing", "order", or the part of the message that differs
	ID    string    `json:"id"`
	Where [2]string `json:"where"`          // by side; "" on a side that does not have it
	Name  string    `json:"name,omitempty"` // of a header or property
	Only  string    `json:"only,omitempty"` // the only side that has it
	Text  string    `json:"text"`           // what differs, in words
}

// String describes the difference for people, without the id.
func (d difference) String() string {
	if d.Name != "" {
		return fmt.Sprintf("%s %q: %s", d.Kind, d.Name, d.Text)
	}
	return d.Kind + ": " + d.Text
}

// found counts a difference and reports it.
func (x *matcher) found(d difference) {
	x.Differences[d.Kind]++
	x.report(d)
}

// foundIn counts and reports a difference between the two messages of a pair.
func (x *matcher) foundIn(p *pair, d difference) {
	d.ID, d.Where = p.id, [2]string{p.m[theirs].where, p.m[ours].where}
	x.found(d)
}

// compare reports how the two messages of a pair differ.
func (x *matcher) compare(p *pair) {
	t, o := p.m[theirs], p.m[ours]
	if t.partition != o.partition && (t.key != nil || o.key != nil) {
		x.foundIn(p, difference{Kind: "partition", Text: fmt.Sprintf("theirs %d, ours %d", t.partition, o.partition)})
	}
	x.compareBytes(p, "routing key", "", []byte(t.routingKey), []byte(o.routingKey))
	x.compareBytes(p, "key", "", t.key, o.key)
	x.compareBytes(p, "value", "", t.value, sameSchema(t.value, o.value))
	x.compareHeaders(p)
	x.compareNamed(p, "property", t.properties, o.properties)
}

// one returns 1 for true, to count with.
func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// compareBytes reports when two texts differ. null and an empty text differ.
func (x *matcher) compareBytes(p *pair, kind, name string, theirs, ours []byte) {
	if (theirs == nil) != (ours == nil) || !bytes.Equal(theirs, ours) {
		x.foundIn(p, difference{Kind: kind, Name: name, Text: bytesText(theirs, ours, x.excerpts)})
	}
}

// valueSchema finds the name of the value's schema in a value that carries its schema. Debezium
// calls the schema of an envelope PREFIX.SCHEMA.TABLE.ROUTE.Value, and keeps for each shape the
// name of the first event since its start. The schema of a field is no match: the field's name
// follows it.
var valueSchema = lazy.Regexp(`(?s)^\{"schema":\{.*?"name":"([^"]*\.Value)"(?:,"version":[0-9]+)?\},"payload":`)

// sameSchema returns our value with the name that the schema has in theirs. That name depends on
// which event Debezium saw first, so it is no difference.
func sameSchema(theirs, ours []byte) []byte {
	t, o := valueSchema().FindSubmatchIndex(theirs), valueSchema().FindSubmatchIndex(ours)
	if t == nil || o == nil || bytes.Equal(theirs[t[2]:t[3]], ours[o[2]:o[3]]) {
		return ours
	}
	return slices.Concat(ours[:o[2]], theirs[t[2]:t[3]], ours[o[3]:])
}

// contextHeaders is the prefix of four headers in which Debezium says, by a random id, which run of
// which connector it is.
const contextHeaders = "__debezium.context."

// compareHeaders compares the headers, except those that are left out, and on Kafka their order.
func (x *matcher) compareHeaders(p *pair) {
	var lists [2][]header
	for side := range lists {
		lists[side] = slices.DeleteFunc(slices.Clone(p.m[side].headers), func(h header) bool {
			return slices.Contains(x.ignore, h.name) || strings.HasPrefix(h.name, contextHeaders)
		})
	}
	both := x.compareNamed(p, "header", lists[theirs], lists[ours])
	if x.kafka && both && !slices.EqualFunc(lists[theirs], lists[ours], func(t, o header) bool { return t.name == o.name }) {
		x.foundIn(p, difference{Kind: "order of headers", Text: fmt.Sprintf("theirs %s; ours %s", namesOf(lists[theirs]), namesOf(lists[ours]))})
	}
}

func namesOf(headers []header) string {
	var names []string
	for _, h := range headers {
		names = append(names, h.name)
	}
	return strings.Join(names, ", ")
}

// compareNamed compares headers or properties by name. The second one of a name is compared with
// the second one. It reports whether both sides have all names.
func (x *matcher) compareNamed(p *pair, kind string, theirs, ours []header) (both bool) {
	both = true
	only := func(name string, side int) {
		both = false
		x.foundIn(p, difference{Kind: kind, Name: name, Only: sideName[side], Text: "only in " + sideName[side]})
	}
	left := slices.Clone(ours)
	for _, t := range theirs {
		i := slices.IndexFunc(left, func(o header) bool { return o.name == t.name })
		if i < 0 {
			only(t.name, 0)
			continue
		}
		if o := left[i]; t.kind != o.kind {
			x.foundIn(p, difference{Kind: kind, Name: t.name, Text: fmt.Sprintf("theirs is of type %s, ours of type %s", t.kind, o.kind)})
		} else {
			x.compareBytes(p, kind, t.name, t.value, o.value)
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, o := range left {
		only(o.name, 1)
	}
	return both
}

// bytesText says how two texts differ, with excerpts if excerpts is true.
func bytesText(theirs, ours []byte, excerpts bool) string {
	at := 0
	for at < len(theirs) && at < len(ours) && theirs[at] == ours[at] {
		at++
	}
	text := fmt.Sprintf("differs from byte %d on (theirs %d bytes, ours %d)", at, len(theirs), len(ours))
	switch {
	case theirs == nil:
		text = fmt.Sprintf("theirs is null, ours has %d bytes", len(ours))
	case ours == nil:
		text = fmt.Sprintf("theirs has %d bytes, ours is null", len(theirs))
	}
	if excerpts {
		text += fmt.Sprintf("\n    theirs %s\n    ours   %s", excerpt(theirs, at), excerpt(ours, at))
	}
	return text
}

// excerpt returns a part of a text around a place, quoted so that it cannot control a terminal.
func excerpt(b []byte, at int) string {
	if b == nil {
		return "null"
	}
	from := max(0, at-24)
	return command.If(from > 0, "…") + fmt.Sprintf("%.64q", b[from:]) + command.If(len(b)-from > 64, "…")
}
