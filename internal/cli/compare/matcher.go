// The matcher pairs messages by the event's id, in whatever order the two sides send them. It is
// pure: no I/O, no clock, no goroutine.

package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// sideName are the names of the two sides, by their places in arrays.
var sideName = [2]string{"theirs", "ours"}

const theirs, ours = 0, 1

// message is a message as it lay at the broker. The matcher keeps it: its bytes must not change.
type message struct {
	where      string // for people: "shop.order, partition 2, offset 17"
	partition  int    // 0 where there are none
	routingKey string
	key, value []byte // nil: null
	headers    []header
	properties []header // those of an AMQP message that are set, sorted
	time       int64    // of the record, milliseconds since 1970
	// its counterpart may have been sent before anybody looked, or after: alone it is no difference
	atTheEdge bool
}

// header is a header or property.
type header struct {
	name string
	// its type, where the protocol has any: "text" and "bytes" are not the same to a consumer
	kind  string
	value []byte // nil: null
}

// size is about what the message takes in memory.
func (m *message) size() int {
	const fixed, each = 256, 64
	n := fixed + len(m.where) + len(m.routingKey) + len(m.key) + len(m.value)
	for _, h := range m.headers {
		n += each + len(h.name) + len(h.value)
	}
	return n
}

// id is the event's id: the header's, else the property message_id, in which cdc-relay has it
// without a profile. A header of Debezium Server is JSON: {"schema":…,"payload":"x"}, "x" and x are
// one id, so that two formats are a difference of the header and not two events.
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

// counts are what has been found so far. Arrays are by side.
type counts struct {
	Compared    int64            `json:"compared"` // pairs
	Equal       int64            `json:"equal"`    // but for their order
	Differences map[string]int64 `json:"differences"`
	LeftOut     leftOut          `json:"left_out"`
	Events      [2]int64         `json:"messages"` // with an id, repetitions and all
	Duplicates  [2]int64         `json:"duplicates"`
	NoID        [2]int64         `json:"without_id"`  // they are not compared
	AtTheEdge   [2]int64         `json:"not_counted"` // alone
}

// leftOut counts pairs in which something differs, or may differ, that is left out.
type leftOut struct {
	Headers     int64 `json:"headers"`            // of Debezium's run, and ignored ones
	SchemaNames int64 `json:"value_schema_names"` // theirs is that of the first event
	Times       int64 `json:"times"`
	Partitions  int64 `json:"partitions_without_key"` // of records without a key
}

// total is the number of differences.
func (c *counts) total() (n int64) {
	for _, one := range c.Differences {
		n += one
	}
	return n
}

// matcher pairs the messages of both sides. It is used from one goroutine.
type matcher struct {
	counts
	idHeader string   // by which messages are paired
	ignore   []string // names of headers that are left out
	kafka    bool     // the order of headers means something, and so do keys
	excerpts bool
	report   func(difference)

	events  map[string]*pair
	number  [2]int64 // of messages so far
	waiting [2]int   // bytes of those that wait for their counterparts
}

// pair is an event, of which one side or both have sent a message.
type pair struct {
	id     string
	m      [2]*message // nil: not sent, or compared already
	number [2]int64    // 0: not sent
	group  string      // in which order is compared: the key
	loose  bool        // it has none, or another on each side
}

// add takes the next message of a side.
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

// finish reports what has no counterpart, and pairs that stand in another order than an earlier one
// of their key. Cut short, it says nothing of events that are alone: their counterparts may have
// been on their way.
func (x *matcher) finish(cut bool) {
	all := slices.SortedFunc(maps.Values(x.events), func(p, q *pair) int {
		return cmp.Or(cmp.Compare(p.number[theirs], q.number[theirs]), cmp.Compare(p.number[ours], q.number[ours]))
	})
	last := map[string]*pair{} // of each key, the one that our side has sent last
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
