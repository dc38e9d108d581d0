// The comparison of a pair, field by field.

package compare

import (
	"bytes"
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
		x.differ(pair, Difference{Kind: KindTopic, Byte: -1})
	}
	x.partition(pair)
	x.bytesOf(pair, Difference{Kind: KindRoutingKey}, []byte(theirs.RoutingKey), []byte(ours.RoutingKey))
	x.bytesOf(pair, Difference{Kind: KindKey}, theirs.Key, ours.Key)
	x.value(pair)
	x.headers(pair)
	x.named(pair, KindProperty, theirs.Properties, ours.Properties)
	if theirs.Time != ours.Time {
		if x.opt.Times {
			x.differ(pair, Difference{Kind: KindTime, Byte: -1, Numbers: &[2]int64{theirs.Time, ours.Time}})
		} else {
			x.LeftOut.Times++
		}
	}
	return x.Total() > before
}

func (x *Matcher) partition(pair [2]*pending) {
	theirs, ours := &pair[Theirs].m, &pair[Ours].m
	switch {
	case !x.opt.Partitions || theirs.Partition == ours.Partition:
	case theirs.Key == nil && ours.Key == nil && !x.opt.Strict:
		x.LeftOut.Partitions++
	default:
		x.differ(pair, Difference{Kind: KindPartition, Byte: -1, Numbers: &[2]int64{int64(theirs.Partition), int64(ours.Partition)}})
	}
}

// bytesOf reports when two texts differ; null is not empty.
func (x *Matcher) bytesOf(pair [2]*pending, d Difference, theirs, ours []byte) {
	if (theirs == nil) == (ours == nil) && bytes.Equal(theirs, ours) {
		return
	}
	at := common(theirs, ours)
	x.bytesAt(pair, d, theirs, ours, [2]int{at, at})
}

func (x *Matcher) bytesAt(pair [2]*pending, d Difference, theirs, ours []byte, at [2]int) {
	d.Byte = at[Theirs]
	d.Lengths = &[2]int{length(theirs), length(ours)}
	if x.opt.Excerpts {
		d.Excerpts = &[2]string{excerpt(theirs, at[Theirs]), excerpt(ours, at[Ours])}
	}
	x.differ(pair, d)
}

// length is -1 for null.
func length(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// common is how many bytes two texts have in common at their beginnings.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (x *Matcher) value(pair [2]*pending) {
	theirs, ours := pair[Theirs].m.Value, pair[Ours].m.Value
	if x.opt.Strict || theirs == nil || ours == nil || bytes.Equal(theirs, ours) {
		x.bytesOf(pair, Difference{Kind: KindValue}, theirs, ours)
		return
	}
	t, tok := valueSchemaName(theirs)
	o, ook := valueSchemaName(ours)
	if !tok || !ook || bytes.Equal(theirs[t.from:t.to], ours[o.from:o.to]) {
		x.bytesOf(pair, Difference{Kind: KindValue}, theirs, ours)
		return
	}
	x.LeftOut.SchemaNames++
	without := [2][]byte{t.cut(theirs), o.cut(ours)}
	if at := common(without[Theirs], without[Ours]); at < len(without[Theirs]) || at < len(without[Ours]) {
		x.bytesAt(pair, Difference{Kind: KindValue}, theirs, ours, [2]int{t.uncut(at), o.uncut(at)})
	}
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
	taken := make([]bool, len(ours))
	for _, t := range theirs {
		i := slices.IndexFunc(ours, func(o Header) bool { return o.Name == t.Name })
		for i >= 0 && taken[i] {
			next := slices.IndexFunc(ours[i+1:], func(o Header) bool { return o.Name == t.Name })
			if next < 0 {
				i = -1
			} else {
				i += 1 + next
			}
		}
		if i < 0 {
			x.differ(pair, Difference{Kind: kind, Name: t.Name, Only: Theirs.String(), Byte: -1})
			continue
		}
		taken[i] = true
		o := ours[i]
		if t.Kind != o.Kind {
			x.differ(pair, Difference{Kind: kind, Name: t.Name, Types: &[2]string{t.Kind, o.Kind}, Byte: -1})
			continue
		}
		x.bytesOf(pair, Difference{Kind: kind, Name: t.Name}, t.Value, o.Value)
	}
	for i, o := range ours {
		if !taken[i] {
			x.differ(pair, Difference{Kind: kind, Name: o.Name, Only: Ours.String(), Byte: -1})
		}
	}
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
		x.differ(pair, Difference{Kind: KindHeaderOrder, Orders: &[2]string{strings.Join(names[Theirs], ", "), strings.Join(names[Ours], ", ")}, Byte: -1})
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
