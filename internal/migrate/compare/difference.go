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

// Difference is one thing that is not the same.
type Difference struct {
	Kind  Kind      `json:"kind"`
	ID    string    `json:"id"`
	Where [2]string `json:"where"`          // by Side; "" on a side that has it not
	Name  string    `json:"name,omitempty"` // of a header or property
	Only  string    `json:"only,omitempty"` // the side that alone has it
	Text  string    `json:"text"`           // what differs, in words
}

// String is the difference for a person, without the id.
func (d Difference) String() string {
	what := string(d.Kind)
	if d.Name != "" {
		what += " " + strconv.Quote(d.Name)
	}
	return what + ": " + d.Text
}

// bytesText tells how two texts differ, and shows excerpts of them if it may.
func bytesText(theirs, ours []byte, excerpts bool) (text string) {
	at := 0
	for at < len(theirs) && at < len(ours) && theirs[at] == ours[at] {
		at++
	}
	if theirs == nil || ours == nil {
		text = "theirs " + bytesOrNull(theirs) + ", ours " + bytesOrNull(ours)
	} else {
		text = fmt.Sprintf("differs from byte %d on (theirs %d bytes, ours %d)", at, len(theirs), len(ours))
	}
	if excerpts {
		text += fmt.Sprintf("\n    theirs %s\n    ours   %s", excerpt(theirs, at), excerpt(ours, at))
	}
	return text
}

func bytesOrNull(b []byte) string {
	if b == nil {
		return "is null"
	}
	return fmt.Sprintf("has %d bytes", len(b))
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
