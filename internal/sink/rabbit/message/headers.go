// The headers column, and the names of headers that are the relay's own.

package message

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// HeaderColumn is one message header whose value is a column's text.
type HeaderColumn struct{ Name, Column string }

// The message headers that are the relay's own, and the ones it never writes for anybody.
const (
	headerAggregate   = "aggregate_type"
	HeaderKey         = "aggregate_id"
	headerTime        = "timestamp_in_ms"
	HeaderPosition    = "cdc_position"
	headerTraceparent = "traceparent"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
)

var reserved = []string{headerAggregate, HeaderKey, headerTime, HeaderPosition, headerTraceparent, HeaderReplay, "x-retry-count"}

// Reserved reports whether name is a header of the relay's own: not to be configured, dropped from
// the headers column.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// HeadersColumn writes the headers of a JSON object, types kept: a string, true, false and null are
// what they are in AMQP; a number that fits is a 64-bit integer, any other a double, and one that
// no double can hold (or an integer beyond 64 bits) is its text; an array or object is its JSON
// text. Keys that are the relay's own are dropped and counted. A JSON null is no headers. Strings
// alias doc where they can.
func (m *Message) HeadersColumn(doc []byte) *sink.Fault {
	members, ok := event.MembersOf(doc)
	if !ok {
		return Invalid("the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		if i := slices.Index(reserved, text(name)); i >= 0 {
			if m.Layout.Dropped != nil {
				// not name, which aliases the event: a counter keeps its label
				m.Layout.Dropped(reserved[i])
			}
			continue
		}
		if len(name) > MaxShortString {
			return Invalid(fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(name), MaxShortString))
		}
		value, size := headerValue(raw)
		m.set(text(name), value, size)
	}
	return nil
}

// headerValue is a JSON value as amqp091 encodes it, and its encoded size without the type octet.
func headerValue(raw []byte) (value any, size int) {
	switch raw[0] {
	case 'n':
		return nil, 0
	case 't', 'f':
		return raw[0] == 't', 1
	case '"':
		s := text(event.Unquote(raw))
		return s, 4 + len(s)
	case '{', '[':
		return text(raw), 4 + len(raw)
	}
	if n, err := strconv.ParseInt(text(raw), 10, 64); err == nil {
		return n, 8
	}
	if bytes.ContainsAny(raw, ".eE") {
		if f, err := strconv.ParseFloat(text(raw), 64); err == nil {
			return f, 8
		}
	}
	return text(raw), 4 + len(raw)
}
