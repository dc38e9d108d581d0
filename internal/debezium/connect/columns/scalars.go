// Readers of numbers, booleans, texts and bytes (PgOutputColumnValue and the converters of
// JdbcValueConverters).

package columns

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

func readBool(scratch, text []byte) (connect.Value, []byte, error) {
	v := connect.Value{Kind: connect.Bool}
	if string(text) == "t" {
		v.Int = 1
	}
	return v, scratch, nil
}

// parseBool is Boolean.parseBoolean: what is not "true" is false.
func parseBool(scratch, text []byte) (connect.Value, []byte, error) {
	v := connect.Value{Kind: connect.Bool}
	if strings.EqualFold(string(text), "true") {
		v.Int = 1
	}
	return v, scratch, nil
}

func readInt16(scratch, text []byte) (connect.Value, []byte, error) {
	return readInt(scratch, text, 16)
}

func readInt32(scratch, text []byte) (connect.Value, []byte, error) {
	return readInt(scratch, text, 32)
}

func readInt64(scratch, text []byte) (connect.Value, []byte, error) {
	return readInt(scratch, text, 64)
}

func readInt(scratch, text []byte, bits int) (connect.Value, []byte, error) {
	n, err := strconv.ParseInt(string(text), 10, bits)
	if err != nil {
		return connect.Value{}, scratch, errNotIts
	}
	return connect.Value{Kind: connect.Integer, Int: n}, scratch, nil
}

func readFloat32(scratch, text []byte) (connect.Value, []byte, error) {
	return readFloat(scratch, text, 32)
}

func readFloat64(scratch, text []byte) (connect.Value, []byte, error) {
	return readFloat(scratch, text, 64)
}

func readFloat(scratch, text []byte, bits int) (connect.Value, []byte, error) {
	f, err := strconv.ParseFloat(string(text), bits)
	if err != nil {
		return connect.Value{}, scratch, errNotIts
	}
	return connect.Value{Kind: connect.Float, Float: f}, scratch, nil
}

func readText(scratch, text []byte) (connect.Value, []byte, error) {
	return connect.Value{Kind: connect.Text, Data: text}, scratch, nil
}

// readChar fills a char(n), of which an event has no trailing blanks, as PostgreSQL does: by
// characters.
func readChar(length int) reader {
	return func(scratch, text []byte) (connect.Value, []byte, error) {
		missing := length - utf8.RuneCount(text)
		if missing <= 0 {
			return readText(scratch, text)
		}
		start := len(scratch)
		scratch = append(append(scratch, text...), bytes.Repeat([]byte(" "), missing)...)
		return connect.TextValue(scratch[start:]), scratch, nil
	}
}

// parseUUID is UUID.fromString and back: lower case.
func parseUUID(scratch, text []byte) (connect.Value, []byte, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(text) != len(form) {
		return connect.Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = append(scratch, strings.ToLower(string(text))...)
	v := connect.TextValue(scratch[start:])
	for i, c := range v.Data {
		if (form[i] == '-') != (c == '-') || c != '-' && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return connect.Value{}, scratch[:start], errNotIts
		}
	}
	return v, scratch, nil
}

// byteaKind is bytea's schema and reader under binary.handling.mode. Debezium reads no defaults of
// it.
func byteaKind(mode BinaryMode) columnKind {
	schema, raw := connect.Schema{Type: connect.String}, readBuffer
	switch mode {
	case BinaryBase64:
		raw = encoded(base64.StdEncoding.AppendEncode)
	case BinaryBase64URLSafe:
		raw = encoded(base64.URLEncoding.AppendEncode)
	case BinaryHex:
		raw = encoded(hex.AppendEncode)
	default:
		schema.Type = connect.Bytes
	}
	return columnKind{schema: schema, raw: raw, read: func(scratch, text []byte) (connect.Value, []byte, error) {
		if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
			return connect.Value{}, scratch, errNotIts
		}
		start := len(scratch)
		scratch, err := hex.AppendDecode(scratch, text[2:])
		if err != nil {
			return connect.Value{}, scratch[:start], errNotIts
		}
		return raw(scratch, scratch[start:len(scratch):len(scratch)])
	}}
}

func readBuffer(scratch, data []byte) (connect.Value, []byte, error) {
	return connect.Value{Kind: connect.Buffer, Data: data}, scratch, nil
}

// encoded makes a string of bytes.
func encoded(appendEncode func(dst, src []byte) []byte) reader {
	return func(scratch, data []byte) (connect.Value, []byte, error) {
		start := len(scratch)
		scratch = appendEncode(scratch, data)
		return connect.TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
	}
}
