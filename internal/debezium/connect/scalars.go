// Readers of numbers, booleans, texts and bytes (PgOutputColumnValue and the converters of JdbcValueConverters).

package connect

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
)

func readBool(scratch, text []byte) (Value, []byte, error) {
	v := Value{Kind: Bool}
	if string(text) == "t" {
		v.Int = 1
	}
	return v, scratch, nil
}

// parseBool is Boolean.parseBoolean: what is not "true" is false.
func parseBool(scratch, text []byte) (Value, []byte, error) {
	v := Value{Kind: Bool}
	if strings.EqualFold(string(text), "true") {
		v.Int = 1
	}
	return v, scratch, nil
}

func readInt16(scratch, text []byte) (Value, []byte, error) { return readInt(scratch, text, 16) }
func readInt32(scratch, text []byte) (Value, []byte, error) { return readInt(scratch, text, 32) }
func readInt64(scratch, text []byte) (Value, []byte, error) { return readInt(scratch, text, 64) }

func readInt(scratch, text []byte, bits int) (Value, []byte, error) {
	n, err := strconv.ParseInt(string(text), 10, bits)
	if err != nil {
		return Value{}, scratch, errNotIts
	}
	return Value{Kind: Integer, Int: n}, scratch, nil
}

func readFloat32(scratch, text []byte) (Value, []byte, error) { return readFloat(scratch, text, 32) }

func readFloat64(scratch, text []byte) (Value, []byte, error) { return readFloat(scratch, text, 64) }

func readFloat(scratch, text []byte, bits int) (Value, []byte, error) {
	f, err := strconv.ParseFloat(string(text), bits)
	if err != nil {
		return Value{}, scratch, errNotIts
	}
	return Value{Kind: Float, Float: f}, scratch, nil
}

func readText(scratch, text []byte) (Value, []byte, error) {
	return Value{Kind: Text, Data: text}, scratch, nil
}

// parseUUID is UUID.fromString and back: lower case.
func parseUUID(scratch, text []byte) (Value, []byte, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(text) != len(form) {
		return Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = append(scratch, strings.ToLower(string(text))...)
	v := TextValue(scratch[start:])
	for i, c := range v.Data {
		if (form[i] == '-') != (c == '-') || c != '-' && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return Value{}, scratch[:start], errNotIts
		}
	}
	return v, scratch, nil
}

// byteaKind is bytea's schema and reader under binary.handling.mode. Debezium reads no defaults of it.
func byteaKind(mode BinaryMode) columnKind {
	schema, raw := Schema{Type: String}, readBuffer
	switch mode {
	case BinaryBase64:
		raw = encoded(base64.StdEncoding.AppendEncode)
	case BinaryBase64URLSafe:
		raw = encoded(base64.URLEncoding.AppendEncode)
	case BinaryHex:
		raw = encoded(hex.AppendEncode)
	default:
		schema.Type = Bytes
	}
	return columnKind{schema: schema, raw: raw, read: func(scratch, text []byte) (Value, []byte, error) {
		if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
			return Value{}, scratch, errNotIts
		}
		start := len(scratch)
		scratch, err := hex.AppendDecode(scratch, text[2:])
		if err != nil {
			return Value{}, scratch[:start], errNotIts
		}
		return raw(scratch, scratch[start:len(scratch):len(scratch)])
	}}
}

func readBuffer(scratch, data []byte) (Value, []byte, error) {
	return Value{Kind: Buffer, Data: data}, scratch, nil
}

// encoded makes a string of bytes.
func encoded(appendEncode func(dst, src []byte) []byte) reader {
	return func(scratch, data []byte) (Value, []byte, error) {
		start := len(scratch)
		scratch = appendEncode(scratch, data)
		return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
	}
}
