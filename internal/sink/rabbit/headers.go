package rabbit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// headersColumn writes the headers of a JSON object, types kept: a string, true, false and null are what they are in
// AMQP; a number that fits is a 64-bit integer, any other a double, and one that no double can hold (or an integer beyond
// 64 bits) is its text; an array or object is its JSON text. Keys that are the relay's own are dropped and counted.
// A JSON null is no headers.
//
// The document is checked first, so that what scans it may rely on its form. Strings alias doc where they can.
func (m *message) headersColumn(doc []byte) *sink.Fault {
	doc = bytes.TrimSpace(doc)
	if string(doc) == "null" {
		return nil
	}
	if len(doc) == 0 || doc[0] != '{' || !json.Valid(doc) {
		return invalid("the headers column is not a JSON object")
	}
	for rest := doc[1:]; ; {
		rest = bytes.TrimLeft(rest, ", \t\r\n")
		if rest[0] == '}' {
			return nil
		}
		n := valueEnd(rest)
		name := unquote(rest[:n])
		rest = bytes.TrimLeft(rest[n:], ": \t\r\n")
		n = valueEnd(rest)
		raw := rest[:n]
		rest = rest[n:]
		if i := slices.Index(reserved, name); i >= 0 {
			if m.layout.dropped != nil {
				m.layout.dropped(reserved[i]) // not name, which aliases the event: a counter keeps its label
			}
			continue
		}
		if len(name) > maxShortString {
			return invalid(fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(name), maxShortString))
		}
		value, size := headerValue(raw)
		m.set(name, value, size)
	}
}

// valueEnd is the length of the JSON value that doc, which is valid, begins with.
func valueEnd(doc []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		c := doc[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted = !quoted; !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 {
				return i // the end of the object that holds the value
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return i
		}
	}
	return len(doc)
}

// unquote is the text of a JSON string.
func unquote(quoted []byte) string {
	plain := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(plain, '\\') < 0 {
		return text(plain)
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return text(plain) // cannot be: the whole document was checked
	}
	return s
}

// headerValue is a JSON value as amqp091 encodes it, and its encoded size without the type octet.
func headerValue(raw []byte) (value any, size int) {
	switch raw[0] {
	case 'n':
		return nil, 0
	case 't', 'f':
		return raw[0] == 't', 1
	case '"':
		s := unquote(raw)
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
