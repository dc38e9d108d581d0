// The comparison of a pair, field by field.

package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// contextHeaders begin the names of four headers in which Debezium says which run of which
// connector it is, by a random id.
const contextHeaders = "__debezium.context."

// compare reports how the two messages of a pair differ, and whether they do.
func (x *Matcher) compare(pair [2]*pending) bool {
	before := x.Total()
	theirs, ours := &pair[Theirs].m, &pair[Ours].m
	if theirs.ExchangeOrTopic != ours.ExchangeOrTopic {
		x.differ(pair, Difference{Kind: KindTopic, Text: "in topics that do not belong together"})
	}
	switch {
	case !x.opt.Partitions || theirs.Partition == ours.Partition:
	case theirs.Key == nil && ours.Key == nil && !x.opt.Strict:
		x.LeftOut.Partitions++
	default:
		x.differ(pair, Difference{Kind: KindPartition, Text: fmt.Sprintf("theirs %d, ours %d", theirs.Partition, ours.Partition)})
	}
	x.bytesOf(pair, Difference{Kind: KindRoutingKey}, []byte(theirs.RoutingKey), []byte(ours.RoutingKey))
	x.bytesOf(pair, Difference{Kind: KindKey}, theirs.Key, ours.Key)
	x.value(pair)
	x.headers(pair)
	x.named(pair, KindProperty, theirs.Properties, ours.Properties)
	switch {
	case theirs.Time == ours.Time:
	case x.opt.Times:
		x.differ(pair, Difference{Kind: KindTime, Text: fmt.Sprintf("theirs %s, ours %s", stamp(theirs.Time), stamp(ours.Time))})
	default:
		x.LeftOut.Times++
	}
	return x.Total() > before
}

// bytesOf reports when two texts differ; null is not empty.
func (x *Matcher) bytesOf(pair [2]*pending, d Difference, theirs, ours []byte) {
	if (theirs == nil) != (ours == nil) || !bytes.Equal(theirs, ours) {
		d.Text = bytesText(theirs, ours, x.opt.Excerpts)
		x.differ(pair, d)
	}
}

// value compares the values. Names of their schemas that differ are counted, and theirs is put into
// ours.
func (x *Matcher) value(pair [2]*pending) {
	theirs, ours := pair[Theirs].m.Value, pair[Ours].m.Value
	if !x.opt.Strict {
		t, tok := valueSchemaName(theirs)
		o, ook := valueSchemaName(ours)
		if tok && ook && !bytes.Equal(theirs[t.from:t.to], ours[o.from:o.to]) {
			x.LeftOut.SchemaNames++
			ours = slices.Concat(ours[:o.from], theirs[t.from:t.to], ours[o.to:])
		}
	}
	x.bytesOf(pair, Difference{Kind: KindValue}, theirs, ours)
}

func (x *Matcher) headers(pair [2]*pending) {
	var lists [2][]Header
	context, ignored := false, false
	for side := range pair {
		for _, h := range pair[side].m.Headers {
			switch {
			case slices.Contains(x.opt.Ignore, h.Name):
				ignored = true
			case !x.opt.Strict && strings.HasPrefix(h.Name, contextHeaders):
				context = true
			default:
				lists[side] = append(lists[side], h)
			}
		}
	}
	x.LeftOut.ContextHeaders += one(context)
	x.LeftOut.Ignored += one(ignored)
	x.named(pair, KindHeader, lists[Theirs], lists[Ours])
	if x.opt.Kafka {
		x.headerOrder(pair, lists)
	}
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// named compares headers or properties by name; the second of a name is compared with the second.
func (x *Matcher) named(pair [2]*pending, kind Kind, theirs, ours []Header) {
	rest := slices.Clone(ours)
	for _, t := range theirs {
		i := slices.IndexFunc(rest, func(o Header) bool { return o.Name == t.Name })
		if i < 0 {
			x.only(pair, kind, t.Name, Theirs)
			continue
		}
		o := rest[i]
		rest = slices.Delete(rest, i, i+1)
		if t.Kind != o.Kind {
			x.differ(pair, Difference{Kind: kind, Name: t.Name, Text: fmt.Sprintf("theirs is of type %s, ours of type %s", t.Kind, o.Kind)})
			continue
		}
		x.bytesOf(pair, Difference{Kind: kind, Name: t.Name}, t.Value, o.Value)
	}
	for _, o := range rest {
		x.only(pair, kind, o.Name, Ours)
	}
}

func (x *Matcher) only(pair [2]*pending, kind Kind, name string, side Side) {
	x.differ(pair, Difference{Kind: kind, Name: name, Only: side.String(), Text: "only in " + side.String()})
}

// headerOrder compares the order of the names that both have.
func (x *Matcher) headerOrder(pair [2]*pending, lists [2][]Header) {
	var names [2][]string
	for side := range lists {
		for _, h := range lists[side] {
			if count(lists[0], h.Name) == count(lists[1], h.Name) {
				names[side] = append(names[side], h.Name)
			}
		}
	}
	if !slices.Equal(names[Theirs], names[Ours]) {
		x.differ(pair, Difference{Kind: KindHeaderOrder, Text: fmt.Sprintf("theirs %s; ours %s", strings.Join(names[Theirs], ", "), strings.Join(names[Ours], ", "))})
	}
}

func count(list []Header, name string) (n int) {
	for _, h := range list {
		if h.Name == name {
			n++
		}
	}
	return n
}
