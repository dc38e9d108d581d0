// Converts the text of a database whose encoding is not UTF-8.

package decode

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Encoding converts the text of one database to UTF-8. The server is asked to send text as it is
// stored: it fails at a row that it cannot convert, at each attempt, and no later row would ever
// come. Here such a value is the fault of its row. Frames and their order, and with them positions,
// are the same either way.
//
// Ids and keys must be the same, too, whichever relay has read them: what is converted here is what
// the server would have sent. PostgreSQL converts one character after the other, the first byte of
// a character tells its length, and ASCII is itself. So each character is asked for once, and
// no table of ours can differ from the server's. What a value has of characters that the server
// refuses is never guessed. SQL_ASCII has no conversion: a value must be UTF-8, as it must for the
// server.
//
// A nil Encoding is that of a UTF-8 database, whose text is taken as it is. It is not safe for
// concurrent use.
type Encoding struct {
	name    string // PostgreSQL's
	convert func(characters [][]byte) (utf8 [][]byte, err error)
	length  [256]int          // of a character, by its first byte
	known   map[uint32][]byte // by the bytes of a character, big endian
	buffer  []byte            // of what was converted since the decoder's last call
	// the first error of convert: whether a text can be converted is unknown since, and what was
	// made of a frame may be wrong
	err error
}

// NewEncoding makes the Encoding for a server_encoding. convert returns each character in UTF-8;
// nil without an error means that the server refuses one of them.
func NewEncoding(name string, convert func(characters [][]byte) (utf8 [][]byte, err error)) *Encoding {
	if name == "UTF8" {
		return nil
	}
	e := &Encoding{name: name, convert: convert, known: map[uint32][]byte{}}
	for first := range e.length {
		e.length[first] = 1
		if strings.HasPrefix(name, "EUC_") {
			e.length[first] = 2
		}
	}
	switch name { // its single shifts; the others are of two bytes
	case "EUC_TW":
		e.length[0x8e] = 4
	case "EUC_JP", "EUC_JIS_2004":
		e.length[0x8f] = 3
	}
	return e
}

// Message is a message of the server in UTF-8, converted as a name is.
func (e *Encoding) Message(s string) (string, error) {
	if e == nil {
		return s, nil
	}
	return string(e.label([]byte(s))), e.err
}

// Text is s in UTF-8; ok is false when it cannot be converted.
func (e *Encoding) Text(s []byte) (text string, ok bool, err error) {
	if e == nil {
		return string(s), true, nil
	}
	b, ok := e.text(s)
	return string(b), ok, e.err
}

// label is a name in UTF-8. One that cannot be converted is written with \xe9 for such a byte: in
// practice two of them stay two, and neither is a name that somebody has configured.
func (e *Encoding) label(name []byte) []byte {
	if e == nil {
		return name
	}
	if text, ok := e.text(name); ok {
		return text
	}
	var escaped []byte
	for _, c := range name {
		if c < utf8.RuneSelf {
			escaped = append(escaped, c)
		} else {
			escaped = fmt.Appendf(escaped, `\x%x`, c)
		}
	}
	return escaped
}

// text is b in UTF-8: b itself or a piece of the buffer. ok is false when b cannot be converted,
// and after an error.
func (e *Encoding) text(b []byte) (text []byte, ok bool) {
	if e == nil || e.name == "SQL_ASCII" {
		if !utf8.Valid(b) {
			return nil, false
		}
		return b, true
	}
	n := leadingASCII(b)
	if n == len(b) {
		return b, true
	}
	start := len(e.buffer)
	e.buffer = append(slices.Grow(e.buffer, len(b)+len(b)/2), b[:n]...)
	for rest := b[n:]; len(rest) > 0; rest = rest[n:] {
		if n = leadingASCII(rest); n > 0 {
			e.buffer = append(e.buffer, rest[:n]...)
			continue
		}
		n = min(e.length[rest[0]], len(rest)) // the server refuses one that is cut
		character, ok := e.known[code(rest[:n])]
		if !ok {
			if !e.learn(rest) {
				e.buffer = e.buffer[:start]
				return nil, false
			}
			character = e.known[code(rest[:n])]
		}
		e.buffer = append(e.buffer, character...)
	}
	return e.buffer[start:len(e.buffer):len(e.buffer)], true
}

// learn asks for all characters of b that have not come before.
func (e *Encoding) learn(b []byte) bool {
	if e.err != nil {
		return false
	}
	var characters [][]byte
	asked := map[uint32]bool{}
	for len(b) > 0 {
		if n := leadingASCII(b); n > 0 {
			b = b[n:]
			continue
		}
		character := b[:min(e.length[b[0]], len(b))]
		c := code(character)
		if _, ok := e.known[c]; !ok && !asked[c] {
			asked[c] = true
			characters = append(characters, character)
		}
		b = b[len(character):]
	}
	converted, err := e.convert(characters)
	if err == nil && converted != nil && len(converted) != len(characters) {
		err = fmt.Errorf("convert %d characters: %d came back", len(characters), len(converted))
	}
	if err != nil {
		e.err = err
		return false
	}
	for i, c := range converted {
		e.known[code(characters[i])] = c
	}
	return converted != nil
}

// code is a character as a number. Since its first byte tells its length, and is not zero, no two
// have the same.
func code(character []byte) (c uint32) {
	for _, b := range character {
		c = c<<8 | uint32(b)
	}
	return c
}

// leadingASCII is how many bytes b begins with that are ASCII.
func leadingASCII(b []byte) int {
	for i, c := range b {
		if c >= utf8.RuneSelf {
			return i
		}
	}
	return len(b)
}
