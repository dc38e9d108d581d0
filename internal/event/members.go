// The members of a JSON object, which is what the headers column of an outbox holds, and what a
// logical message is.

package event

import (
	"bytes"
	"encoding/json"
)

// Members iterates over the members of a JSON object in order; duplicates are returned each time.
// The zero value has none. It allocates for names with escapes and nothing else.
type Members struct{ rest []byte }

// MembersOf are those of a document: a JSON object, or null, which has none; ok is false for
// anything else. The document is checked as a whole first, so that Next may rely on its form, and
// must not change before the last Next.
func MembersOf(doc []byte) (m Members, ok bool) {
	doc = bytes.Trim(doc, space)
	if string(doc) == "null" {
		return Members{}, true
	}
	if len(doc) == 0 || doc[0] != '{' || !json.Valid(doc) {
		return Members{}, false
	}
	return Members{doc[1:]}, true
}

// space is what JSON allows between its values (RFC 8259, section 2).
const space = " \t\r\n"

// Next is the name of the next member, unquoted, and its value as it stands in the document; false
// when there is none left. Both alias the document where they can.
func (m *Members) Next() (name, value []byte, ok bool) {
	if m.skip(); len(m.rest) == 0 || m.rest[0] == '}' {
		return nil, nil, false
	}
	name = Unquote(m.take())
	m.skip()
	return name, m.take(), true
}

// skip skips whitespace and punctuation between names and values.
func (m *Members) skip() {
	for i, c := range m.rest {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			m.rest = m.rest[i:]
			return
		}
	}
}

// take returns the JSON value at the beginning of the rest and moves past it.
func (m *Members) take() []byte {
	n := valueEnd(m.rest)
	value := m.rest[:n:n]
	m.rest = m.rest[n:]
	return value
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

// Unquote is the text of a JSON string of a document that was checked; without escapes it aliases
// it.
func Unquote(quoted []byte) []byte {
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
