// Headers as AMQP has them: each name once, the last one of a record, and with a type.

package message

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// header writes one header, with what its encoded value takes added to the size of the table.
func (m *Message) header(h *sink.Header) *sink.Fault {
	if len(h.Name) > MaxShortString {
		return sink.PermanentFault(sink.Invalid, fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(h.Name), MaxShortString))
	}
	if h.Name == headerCC || h.Name == headerBCC {
		keys, size, fault := m.copies(h)
		if fault == nil && keys != nil {
			m.set(h.Name, keys, size)
		}
		return fault
	}
	var value any
	size := 4 + len(h.Value)
	switch h.Kind {
	case sink.Bytes:
		value = h.Value
	case sink.Text:
		value = text(h.Value)
	case sink.JSON:
		value, size = jsonValue(h.Value)
	}
	m.set(h.Name, value, size)
	return nil
}

// set puts a value of an encoded size into the table. What is over the limit of a frame is only
// counted, for the fault that says how much it is.
func (m *Message) set(name string, value any, size int) {
	m.TableSize += 1 + len(name) + 1 + size // the name with its length, the type, the value
	if m.TableSize <= int(m.Limits.Header.Load()) {
		m.Pub.Headers[name] = value
	}
}

// jsonValue is a JSON value as amqp091 encodes it, and its encoded size without the type octet:
// true, false and null are what they are in AMQP; a number that fits is a 64-bit integer, any other
// a double, and one that no double can hold (or an integer beyond 64 bits) is its text, as is an
// array or object. nil is null.
func jsonValue(raw []byte) (value any, size int) {
	if raw == nil {
		return nil, 0
	}
	switch raw[0] {
	case 't', 'f':
		return raw[0] == 't', 1
	case '{', '[':
		return text(raw), 4 + len(raw)
	}
	if len(raw) <= len("-9223372036854775808") {
		if n, err := strconv.ParseInt(text(raw), 10, 64); err == nil {
			return n, 8
		}
	}
	if bytes.ContainsAny(raw, ".eE") {
		if f, err := strconv.ParseFloat(text(raw), 64); err == nil {
			return f, 8
		}
	}
	return text(raw), 4 + len(raw)
}
