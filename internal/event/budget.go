// The budget of one event: how many bytes may be made of its row, and with how much work. Also the
// members of a JSON object, which the headers column of an outbox and a logical message are.

package event

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Budget bounds what is made of one event, whatever is in its row (I5): the bytes of its key,
// headers, schemas and message, and the work that they take. What a row makes may grow with the
// square of its size: names within names, members that others lack. An event that would cost more
// is refused before the bytes are there. So each byte is charged before it is made.
//
// Both depend on the row alone: an event is refused at every delivery, or at none.
type Budget struct{ bytes, work int } // what is left; below 0: it was used up

// A budget is a constant, which has room for the schemas of any table, and a multiple of the row.
// 6 bytes are what JSON makes of one that it escapes.
const (
	baseBytes, bytesEach = 1 << 20, 8
	baseWork, workEach   = 1 << 18, 4
)

// A small budget is what many events may have at the same time. Hardly an event needs more.
const (
	smallBytes = 64 << 10
	smallWork  = 4 << 10
)

// Why an event is over its budget. A dead letter has it without its figures, so there are none.
var (
	ErrBytes = errors.New("what is made of it is over its budget of bytes: a mebibyte, and eight for each byte of the row")
	ErrWork  = errors.New("what it takes to make it is over its budget of steps: a quarter of a million, and four for each byte of the row")
)

// Budget is the whole budget of an event.
func (e *Event) Budget() Budget { return NewBudget(e.Size()) }

// NewBudget is the budget of a row with this size in bytes.
func NewBudget(size int) Budget {
	return Budget{bytes: baseBytes + bytesEach*size, work: baseWork + workEach*size}
}

// Small is the budget as far as many events may have it at the same time.
func (b Budget) Small() Budget { return Budget{min(b.bytes, smallBytes), min(b.work, smallWork)} }

// Make charges n bytes that are about to be made; false: they must not be.
func (b *Budget) Make(n int) bool {
	b.bytes -= n
	return b.bytes >= 0
}

// Work charges n steps, each of which takes about as long as one member or comparison of names;
// false: they must not be taken.
func (b *Budget) Work(n int) bool {
	b.work -= n
	return b.work >= 0
}

// UseUp charges more bytes than are left.
func (b *Budget) UseUp() { b.bytes = min(b.bytes, -1) }

// Left is how many bytes may be made.
func (b *Budget) Left() int { return max(b.bytes, 0) }

// Err says which budget was used up; nil: none.
func (b *Budget) Err() error {
	switch {
	case b.bytes < 0:
		return ErrBytes
	case b.work < 0:
		return ErrWork
	}
	return nil
}

// Members iterates over the members of a JSON object in order; duplicates are returned each time.
// The zero value has none. It allocates for names with escapes and nothing else.
type Members struct{ rest []byte }

// MembersOf returns the members of a document: a JSON object, or null, which has none; ok is false
// for anything else. The document is checked as a whole first, so that Next may rely on its form,
// and must not change before the last Next.
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
	if m.skipPunctuation(); len(m.rest) == 0 || m.rest[0] == '}' {
		return nil, nil, false
	}
	name = Unquote(m.takeValue())
	m.skipPunctuation()
	return name, m.takeValue(), true
}

// skipPunctuation skips whitespace and punctuation between names and values.
func (m *Members) skipPunctuation() {
	for i, c := range m.rest {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			m.rest = m.rest[i:]
			return
		}
	}
}

// takeValue returns the JSON value at the beginning of the rest and moves past it.
func (m *Members) takeValue() []byte {
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
