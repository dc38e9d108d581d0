// Reads the JSON strings of logical messages, and writes rows that cannot be decoded as JSON.

package decode

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unquote is the text of a JSON string, which was checked: a piece of it, or, where it has escapes,
// appended to buf, which is returned too. ok is false for half a surrogate pair: ids that differ in
// one only would become the same.
func unquote(quoted, buf []byte) (text, grown []byte, ok bool) {
	s := quoted[1 : len(quoted)-1 : len(quoted)-1]
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s, buf, true
	}
	start := len(buf)
	for ; i >= 0; i = bytes.IndexByte(s, '\\') {
		buf = append(buf, s[:i]...)
		escape := s[i+1]
		s = s[i+2:]
		if escape != 'u' {
			buf = append(buf, unescaped(escape))
			continue
		}
		r := hex4(s)
		s = s[4:]
		if utf16.IsSurrogate(r) {
			if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
				return nil, buf, false
			}
			if r = utf16.DecodeRune(r, hex4(s[2:])); r == utf8.RuneError {
				return nil, buf, false
			}
			s = s[6:]
		}
		buf = utf8.AppendRune(buf, r)
	}
	buf = append(buf, s...)
	return buf[start:len(buf):len(buf)], buf, true
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default: // a quote, a backslash, a slash
		return c
	}
}

// hex4 reads four hexadecimal digits, which were checked.
func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendRow writes a row as a JSON object of the texts of its columns. A value that is not UTF-8,
// or not text at all, stands in hexadecimal under "name:hex", one that the server did not send as
// null under "name:unsent".
func appendRow(b []byte, names []string, values []value) []byte {
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := &values[i]; {
		case v.kind == 'n':
			b = append(appendName(b, name, ""), "null"...)
		case v.kind == 'u':
			b = append(appendName(b, name, ":unsent"), "null"...)
		case v.kind == 't' && utf8.Valid(v.data):
			b = appendQuoted(appendName(b, name, ""), v.data)
		default:
			b = appendHex(appendName(b, name, ":hex"), v.data)
		}
	}
	return append(b, '}')
}

// appendMessage writes a logical message: as it is, or when it is not UTF-8 in hexadecimal.
func appendMessage(b, content []byte) []byte {
	if utf8.Valid(content) {
		return append(b, content...)
	}
	return append(appendHex(append(b, `{"message:hex":`...), content), '}')
}

func appendName(b []byte, name, suffix string) []byte {
	return append(appendQuoted(b, []byte(strings.ToValidUTF8(name, "\ufffd")+suffix)), ':')
}

func appendHex(b, data []byte) []byte {
	return append(hex.AppendEncode(append(b, '"'), data), '"')
}

// appendQuoted writes text, which is UTF-8, as a JSON string.
func appendQuoted(b, text []byte) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
