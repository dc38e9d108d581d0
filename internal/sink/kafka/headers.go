// The headers column: a JSON object whose members become record headers.

package kafka

import (
	"bytes"
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// headersColumn writes the headers of a JSON object. Kafka's are bytes: a string is its text, null is a null value, and a
// number, true, false, an array or an object is its JSON text as it stands. Keys that are the relay's own are dropped and
// counted; a configured header that has a value goes before a key of its name. A key that is there twice (type json keeps
// it) is written twice, and a consumer that asks for the last one has what JSON means. A JSON null is no headers.
//
// The document is checked first, so that what scans it may rely on its form.
func (m *message) headersColumn(ev *outbox.Event) *sink.Fault {
	doc := bytes.TrimSpace(ev.Headers)
	if string(doc) == "null" {
		return nil
	}
	if len(doc) == 0 || doc[0] != '{' || !json.Valid(doc) {
		return invalid("the headers column is not a JSON object")
	}
	for rest := doc[1:]; ; {
		rest = skip(rest)
		if rest[0] == '}' {
			return nil
		}
		n := valueEnd(rest)
		name := text(unquote(rest[:n]))
		rest = skip(rest[n:])
		n = valueEnd(rest)
		if !m.taken(name, ev) {
			m.header(name, headerValue(rest[:n]))
		}
		rest = rest[n:]
	}
}

// taken reports whether the record has a header of the relay's own or a configured one of this name.
func (m *message) taken(name string, ev *outbox.Event) bool {
	for _, own := range reserved {
		if own == name {
			if m.layout.dropped != nil {
				m.layout.dropped(own) // not name, which aliases the event
			}
			return true
		}
	}
	for i := range m.layout.headers {
		if h := &m.layout.headers[i]; h.name == name && ev.Columns[h.column] != nil {
			return true
		}
	}
	return false
}

// skip leaves out what stands between names and values of doc, which is valid and does not end there.
func skip(doc []byte) []byte {
	for {
		switch doc[0] {
		case ' ', '\t', '\r', '\n', ',', ':':
			doc = doc[1:]
		default:
			return doc
		}
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
func unquote(quoted []byte) []byte {
	plain := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(plain, '\\') < 0 {
		return plain
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return plain // cannot be: the whole document was checked
	}
	return []byte(s)
}

// headerValue is a JSON value as a header carries it.
func headerValue(raw []byte) []byte {
	switch raw[0] {
	case 'n':
		return nil
	case '"':
		return unquote(raw)
	}
	return raw
}
