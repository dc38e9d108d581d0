// Reads the JSON strings of logical messages, and writes rows that cannot be decoded as JSON.

package decode

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// unquote is the text of a JSON string, which was checked: a piece of it, or a copy where it has
// escapes. ok is false for half a surrogate pair: ids that differ in one only would become the
// same. encoding/json writes U+FFFD for it, so the text may have no more of these than the string,
// and an escape of one is refused as well.
func unquote(quoted []byte) (text []byte, ok bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1 : len(quoted)-1], true
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	const instead = "\ufffd"
	return slices.Clip([]byte(s)), err == nil && strings.Count(s, instead) == bytes.Count(quoted, []byte(instead))
}

// rawRow writes a row as a JSON object of the texts of its columns. A value that cannot be
// converted to UTF-8, or is no text at all, stands in hexadecimal under "name:hex", as the database
// has it; one that the server did not send as null under "name:unsent"; and of one that was left
// out its size under "name:left_out".
func rawRow(names []string, values []value, encoding *Encoding) []byte {
	b := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		v := &values[i]
		if v.kind == LeftOutValue { // of a column that no event is made of
			b = appendMember(b, name+":left_out", v.size())
			continue
		}
		text, ok := encoding.text(v.data)
		switch {
		case v.kind == 'n':
			b = appendMember(b, name, nil)
		case v.kind == 'u':
			b = appendMember(b, name+":unsent", nil)
		case v.kind == 't' && ok:
			b = appendMember(b, name, string(text))
		default:
			b = appendMember(b, name+":hex", hex.EncodeToString(v.data))
		}
	}
	return append(b, '}')
}

// rawMessage is a logical message as it is, or when it is not UTF-8 in hexadecimal.
func rawMessage(content []byte) []byte {
	if utf8.Valid(content) {
		return content
	}
	return append(appendMember([]byte{'{'}, "message:hex", hex.EncodeToString(content)), '}')
}

// appendMember writes a member of an object: a string, a number, or null.
func appendMember(b []byte, name string, value any) []byte {
	out := bytes.NewBuffer(b)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	_ = e.Encode(name) //nolint:errcheck // a string can always be written
	out.Truncate(out.Len() - 1)
	out.WriteByte(':')
	_ = e.Encode(value) //nolint:errcheck // the same, or a number or null
	return out.Bytes()[:out.Len()-1]
}
