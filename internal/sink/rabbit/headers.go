package rabbit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// headersColumn writes the headers of a JSON object, types kept: a string, true, false and null are what they are in
// AMQP; a number that fits is a 64-bit integer, any other a double, and one that no double can hold (or an integer beyond
// 64 bits) is its text; an array or object is its JSON text. Keys that are the relay's own are dropped and counted.
// A JSON null is no headers.
func (m *message) headersColumn(doc []byte) *sink.Fault {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc, &object); err != nil {
		return invalid("the headers column is not a JSON object")
	}
	for name, raw := range object {
		if Reserved(name) {
			if m.layout.dropped != nil {
				m.layout.dropped(name)
			}
			continue
		}
		if len(name) > maxShortString {
			return invalid(fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(name), maxShortString))
		}
		value, size := headerValue(raw)
		m.set(name, value, size)
	}
	return nil
}

// headerValue is a JSON value as amqp091 encodes it, and its encoded size without the type octet.
func headerValue(raw json.RawMessage) (value any, size int) {
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case 'n':
		return nil, 0
	case 't', 'f':
		return raw[0] == 't', 1
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			s = string(raw) // cannot be: the whole document was parsed
		}
		return s, 4 + len(s)
	case '{', '[':
		return string(raw), 4 + len(raw)
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, 8
	}
	if bytes.ContainsAny(raw, ".eE") {
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
			return f, 8
		}
	}
	return string(raw), 4 + len(raw)
}
