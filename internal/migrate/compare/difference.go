// A difference between two messages, as the report shows it.

package compare

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Kind is what differs.
type Kind string

// The kinds.
const (
	KindMissing     Kind = "missing" // on one side only
	KindTopic       Kind = "topic"   // or exchange
	KindPartition   Kind = "partition"
	KindRoutingKey  Kind = "routing key"
	KindKey         Kind = "key"
	KindValue       Kind = "value"
	KindHeader      Kind = "header"
	KindHeaderOrder Kind = "order of headers"
	KindProperty    Kind = "property"
	KindTime        Kind = "time"
	KindOrder       Kind = "order"
	KindNoID        Kind = "no id"
)

// Kinds are all of them, in the order of the report.
var Kinds = []Kind{
	KindMissing, KindTopic, KindPartition, KindRoutingKey, KindKey, KindValue, KindHeader, KindHeaderOrder, KindProperty, KindTime, KindOrder, KindNoID,
}

// Difference is one thing that is not the same. Arrays are by Side.
type Difference struct {
	Kind  Kind      `json:"kind"`
	ID    string    `json:"id"`
	Where [2]string `json:"where"`          // "" on a side that has it not
	Name  string    `json:"name,omitempty"` // of a header or property
	Only  string    `json:"only,omitempty"` // the side that alone has it
	// in theirs, from 0, the first that differs; -1: nothing of bytes
	Byte     int        `json:"byte"`
	Lengths  *[2]int    `json:"lengths,omitempty"`  // -1: null
	Excerpts *[2]string `json:"excerpts,omitempty"` // around that byte; Go's quoting
	Numbers  *[2]int64  `json:"numbers,omitempty"`  // partitions, or times in milliseconds
	Types    *[2]string `json:"types,omitempty"`
	Orders   *[2]string `json:"orders,omitempty"`
	Before   string     `json:"before,omitempty"` // the id of an event of the same key ...
	// ... before which it comes on this side, and after it on the other
	First string `json:"first,omitempty"`
}

// Words are the difference for a person, without the id.
func (d Difference) Words() string {
	what := string(d.Kind)
	if d.Name != "" {
		what += " " + strconv.Quote(d.Name)
	}
	switch {
	case d.Kind == KindMissing:
		return "only in " + d.Only
	case d.Kind == KindNoID:
		return "a message without an id"
	case d.Kind == KindTopic:
		return "in topics that do not belong together"
	case d.Kind == KindOrder:
		return fmt.Sprintf("order: in %s it comes before %q of the same key, on the other side after it", d.First, d.Before)
	case d.Kind == KindTime:
		return fmt.Sprintf("time: theirs %s, ours %s", stamp(d.Numbers[0]), stamp(d.Numbers[1]))
	case d.Numbers != nil:
		return fmt.Sprintf("%s: theirs %d, ours %d", what, d.Numbers[0], d.Numbers[1])
	case d.Orders != nil:
		return fmt.Sprintf("%s: theirs %s; ours %s", what, d.Orders[0], d.Orders[1])
	case d.Only != "":
		return fmt.Sprintf("%s: only in %s", what, d.Only)
	case d.Types != nil:
		return fmt.Sprintf("%s: theirs is of type %s, ours of type %s", what, d.Types[0], d.Types[1])
	}
	text := what + ": "
	if theirs, ours := d.Lengths[0], d.Lengths[1]; theirs < 0 || ours < 0 {
		text += fmt.Sprintf("theirs %s, ours %s", bytesOrNull(theirs), bytesOrNull(ours))
	} else {
		text += fmt.Sprintf("differs from byte %d on (theirs %d bytes, ours %d)", d.Byte, theirs, ours)
	}
	if d.Excerpts != nil {
		text += fmt.Sprintf("\n    theirs %s\n    ours   %s", d.Excerpts[0], d.Excerpts[1])
	}
	return text
}

func bytesOrNull(n int) string {
	if n < 0 {
		return "is null"
	}
	return fmt.Sprintf("has %d bytes", n)
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// excerpt is a little of a text around a place, quoted so that a terminal has nothing to obey.
func excerpt(b []byte, at int) string {
	const before, after = 24, 40
	if b == nil {
		return "null"
	}
	from, to := max(at-before, 0), min(at+after, len(b))
	for from > 0 && from < len(b) && !utf8.RuneStart(b[from]) && at-from < before+utf8.UTFMax {
		from--
	}
	for to < len(b) && !utf8.RuneStart(b[to]) && to-at < after+utf8.UTFMax {
		to++
	}
	text := strconv.Quote(string(b[from:to]))
	if from > 0 {
		text = "…" + text
	}
	if to < len(b) {
		text += "…"
	}
	return text
}
