// Package converter makes the bytes of a message's key, value or header of a value and its schema,
// as Kafka Connect's and Debezium's converters do. It is pure.
package converter

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/javatext"
)

// Converter is one of Kafka Connect's converters, or of Debezium's.
//
// Append appends the value's bytes to dst, which does not become longer than limit. null says that
// there are none: the record's key, value or header is null, which an empty string is not. schema
// is nil only for the null that a tombstone is, and for a payload whose expansion left none. An
// error is ErrLimit, or what makes Debezium's task fail; it never holds the value.
type Converter interface {
	Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) (out []byte, null bool, err error)
}

// ErrLimit is the error of a value whose bytes would be more than the limit.
var ErrLimit = errors.New("more bytes than there is room for")

// small is more than what is written of a value without text, or around one, and about a schema
// without its names.
const small = 160

// fits reports whether a value that has no members, or what is around them, surely fits. A text is
// looked at only when it would not fit with everything escaped.
func fits(dst []byte, limit int, v connect.Value) bool {
	room := limit - len(dst) - small
	switch v.Kind {
	case connect.Text:
		return textFits(room, v.Data)
	case connect.Decimal: // decimal digits
		return room >= 3*len(v.Data)
	default:
		return room >= 2*len(v.Data)
	}
}

// textMost is about how large a text becomes, and never less: that of a long one is counted.
func textMost(s string) int {
	if len(s) > small {
		return javatext.QuotedSize(s)
	}
	return javatext.QuotedMost * len(s)
}

func textFits[T string | []byte](room int, s T) bool {
	return room >= javatext.QuotedMost*len(s) || room >= javatext.QuotedSize(s)
}

// StringConverter is org.apache.kafka.connect.storage.StringConverter (Debezium Server's format
// simplestring), in UTF-8: the text that the Java object's toString gives, whatever the schema
// says.
type StringConverter struct{}

// Append implements Converter.
func (StringConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind == connect.Null {
		return dst, true, nil
	}
	out, err := appendString(dst, limit, schema, v)
	if err != nil {
		return dst, false, err
	}
	return out, false, nil
}

// ByteArrayConverter is org.apache.kafka.connect.converters.ByteArrayConverter: bytes as they are,
// and nothing but bytes.
type ByteArrayConverter struct{}

// Append implements Converter.
func (ByteArrayConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema != nil && schema.Type != connect.Bytes {
		return dst, false, fmt.Errorf("ByteArrayConverter takes bytes only, not %s", schema.Type)
	}
	switch v.Kind {
	case connect.Null:
		return dst, true, nil
	case connect.Buffer, connect.ByteArray:
		return appendBytes(dst, limit, v)
	default: // a Decimal: its schema's type is bytes, its value is none
		return dst, false, errors.New("ByteArrayConverter takes bytes only")
	}
}

// BinaryDataConverter is io.debezium.converters.BinaryDataConverter (Debezium Server's format
// binary): bytes as they are, everything else by the delegate, without which it is an error.
type BinaryDataConverter struct {
	Delegate Converter // nil: none
}

// Append implements Converter.
func (c BinaryDataConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema == nil || schema.Type == connect.Bytes {
		switch v.Kind {
		case connect.Null:
			return dst, true, nil
		case connect.Buffer, connect.ByteArray:
			return appendBytes(dst, limit, v)
		default:
		}
	}
	return delegate(c.Delegate, "BinaryDataConverter", dst, limit, schema, v)
}

// LegacyByteArrayConverter is io.debezium.converters.ByteArrayConverter, which came before
// BinaryDataConverter and knows byte[] only. The PostgreSQL connector gives bytea as a ByteBuffer,
// so that even bytes go to the delegate there.
type LegacyByteArrayConverter struct {
	Delegate Converter // nil: none
}

// Append implements Converter.
func (c LegacyByteArrayConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema == nil || schema.Type == connect.Bytes {
		switch v.Kind {
		case connect.Null:
			return dst, true, nil
		case connect.ByteArray:
			return appendBytes(dst, limit, v)
		default:
		}
	}
	return delegate(c.Delegate, "ByteArrayConverter of Debezium", dst, limit, schema, v)
}

func appendBytes(dst []byte, limit int, v connect.Value) ([]byte, bool, error) {
	if !fits(dst, limit, v) {
		return dst, false, ErrLimit
	}
	return append(dst, v.Data...), false, nil
}

func delegate(to Converter, name string, dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if to == nil {
		what := "this value"
		if schema != nil {
			what = schema.Type.String()
		}
		return dst, false, fmt.Errorf("%s has no delegate.converter.type for %s", name, what)
	}
	return to.Append(dst, limit, schema, v)
}
