package rabbit

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// headersColumn writes the headers of a JSON object, types kept: a string, true, false and null are what they are in
// AMQP; a number that fits is a 64-bit integer, any other a double, and one that no double can hold (or an integer beyond
// 64 bits) is its text; an array or object is its JSON text. Keys that are the relay's own are dropped and counted.
// A JSON null is no headers.
// Strings alias doc where they can.
func (m *message) headersColumn(doc []byte) *sink.Fault {
	members, ok := outbox.MembersOf(doc)
	if !ok {
		return invalid("the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		if i := slices.Index(reserved, text(name)); i >= 0 {
			if m.layout.dropped != nil {
				m.layout.dropped(reserved[i]) // not name, which aliases the event: a counter keeps its label
			}
			continue
		}
		if len(name) > maxShortString {
			return invalid(fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(name), maxShortString))
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
		s := text(outbox.Unquote(raw))
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
