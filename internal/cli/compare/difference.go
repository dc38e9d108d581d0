// What differs between the two messages of a pair, field by field, and how the report shows it.

package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// kinds are what can differ, in the order of the report.
var kinds = []string{"missing", "partition", "routing key", "key", "value", "header", "order of headers", "property", "order"}

// difference is one thing that is not the same.
type difference struct {
	Kind  string    `json:"kind"`
	ID    string    `json:"id"`
	Where [2]string `json:"where"`          // by side; "" on a side that has it not
	Name  string    `json:"name,omitempty"` // of a header or property
	Only  string    `json:"only,omitempty"` // the side that alone has it
	Text  string    `json:"text"`           // what differs, in words
}

// String is the difference for a person, without the id.
func (d difference) String() string {
	what := d.Kind
	if d.Name != "" {
		what += " " + strconv.Quote(d.Name)
	}
	return what + ": " + d.Text
}

// found counts and reports.
func (x *matcher) found(d difference) {
	x.Differences[d.Kind]++
	x.report(d)
}

// differ is found for a pair.
func (x *matcher) differ(p *pair, d difference) {
	d.ID, d.Where = p.id, [2]string{p.m[theirs].where, p.m[ours].where}
	x.found(d)
}

// compare reports how the two messages of a pair differ.
func (x *matcher) compare(p *pair) {
	t, o := p.m[theirs], p.m[ours]
	switch {
	case t.partition == o.partition:
	case t.key == nil && o.key == nil:
		x.LeftOut.Partitions++
	default:
		x.differ(p, difference{Kind: "partition", Text: fmt.Sprintf("theirs %d, ours %d", t.partition, o.partition)})
	}
	x.bytesOf(p, difference{Kind: "routing key"}, []byte(t.routingKey), []byte(o.routingKey))
	x.bytesOf(p, difference{Kind: "key"}, t.key, o.key)
	x.bytesOf(p, difference{Kind: "value"}, t.value, x.sameSchema(t.value, o.value))
	x.headers(p)
	x.named(p, "property", t.properties, o.properties)
	x.LeftOut.Times += one(t.time != o.time)
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// bytesOf reports when two texts differ; null is not empty.
func (x *matcher) bytesOf(p *pair, d difference, theirs, ours []byte) {
	if (theirs == nil) != (ours == nil) || !bytes.Equal(theirs, ours) {
		d.Text = bytesText(theirs, ours, x.excerpts)
		x.differ(p, d)
	}
}

// valueSchema finds the name of the value's own schema in a value that carries its schema.
// Debezium calls the schema of an envelope PREFIX.SCHEMA.TABLE.ROUTE.Value, and keeps for each
// shape the name of the first event it saw since it started. The schema of a field is followed by
// the field's name.
var valueSchema = lazy.Regexp(`(?s)^\{"schema":\{.*?"name":"([^"]*\.Value)"(?:,"version":[0-9]+)?\},"payload":`)

// sameSchema is our value under the name that the schema has in theirs; names that differ are
// counted.
func (x *matcher) sameSchema(theirs, ours []byte) []byte {
	t, o := valueSchema().FindSubmatchIndex(theirs), valueSchema().FindSubmatchIndex(ours)
	if t == nil || o == nil || bytes.Equal(theirs[t[2]:t[3]], ours[o[2]:o[3]]) {
		return ours
	}
	x.LeftOut.SchemaNames++
	return slices.Concat(ours[:o[2]], theirs[t[2]:t[3]], ours[o[3]:])
}

// contextHeaders begin the names of four headers in which Debezium says which run of which
// connector it is, by a random id.
const contextHeaders = "__debezium.context."

func (x *matcher) headers(p *pair) {
	var lists [2][]header
	ignored := false
	for side := range p.m {
		for _, h := range p.m[side].headers {
			if slices.Contains(x.ignore, h.name) || strings.HasPrefix(h.name, contextHeaders) {
				ignored = true
			} else {
				lists[side] = append(lists[side], h)
			}
		}
	}
	x.LeftOut.Headers += one(ignored)
	x.named(p, "header", lists[theirs], lists[ours])
	if x.kafka {
		x.headerOrder(p, lists)
	}
}

// named compares headers or properties by name; the second of a name is compared with the second.
func (x *matcher) named(p *pair, kind string, theirs, ours []header) {
	only := func(name string, side int) {
		x.differ(p, difference{Kind: kind, Name: name, Only: sideName[side], Text: "only in " + sideName[side]})
	}
	rest := slices.Clone(ours)
	for _, t := range theirs {
		i := slices.IndexFunc(rest, func(o header) bool { return o.name == t.name })
		if i < 0 {
			only(t.name, 0)
			continue
		}
		o := rest[i]
		rest = slices.Delete(rest, i, i+1)
		if t.kind != o.kind {
			x.differ(p, difference{Kind: kind, Name: t.name, Text: fmt.Sprintf("theirs is of type %s, ours of type %s", t.kind, o.kind)})
			continue
		}
		x.bytesOf(p, difference{Kind: kind, Name: t.name}, t.value, o.value)
	}
	for _, o := range rest {
		only(o.name, 1)
	}
}

// headerOrder compares the order of headers of which both have the same.
func (x *matcher) headerOrder(p *pair, lists [2][]header) {
	var names, sorted [2][]string
	for side, list := range lists {
		for _, h := range list {
			names[side] = append(names[side], h.name)
		}
		sorted[side] = slices.Sorted(slices.Values(names[side]))
	}
	if slices.Equal(sorted[theirs], sorted[ours]) && !slices.Equal(names[theirs], names[ours]) {
		x.differ(p, difference{Kind: "order of headers", Text: fmt.Sprintf("theirs %s; ours %s", strings.Join(names[theirs], ", "), strings.Join(names[ours], ", "))})
	}
}

// bytesText tells how two texts differ, and shows excerpts of them if it may.
func bytesText(theirs, ours []byte, excerpts bool) string {
	at := 0
	for at < len(theirs) && at < len(ours) && theirs[at] == ours[at] {
		at++
	}
	text := fmt.Sprintf("differs from byte %d on (theirs %d bytes, ours %d)", at, len(theirs), len(ours))
	if theirs == nil {
		text = fmt.Sprintf("theirs is null, ours has %d bytes", len(ours))
	} else if ours == nil {
		text = fmt.Sprintf("theirs has %d bytes, ours is null", len(theirs))
	}
	if excerpts {
		text += fmt.Sprintf("\n    theirs %s\n    ours   %s", excerpt(theirs, at), excerpt(ours, at))
	}
	return text
}

// excerpt is a little of a text from before a place on, quoted so that a terminal has nothing to
// obey.
func excerpt(b []byte, at int) string {
	if b == nil {
		return "null"
	}
	from := max(0, at-24)
	return command.If(from > 0, "…") + fmt.Sprintf("%.64q", b[from:]) + command.If(len(b)-from > 64, "…")
}
