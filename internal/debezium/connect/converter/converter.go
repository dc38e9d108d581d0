// Package converter makes the bytes of a message's key, value or header of a value and its schema,
// as Kafka Connect's and Debezium's converters do. It is pure.
package converter

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// Converter is one of Kafka Connect's converters, or of Debezium's.
//
// Append appends the value's bytes to dst. null says that there are none: the record's key, value
// or header is null, which an empty string is not. schema is nil only for the null that a tombstone
// is, and for a payload whose expansion left none. An error is what makes Debezium's task fail; it
// never holds the value.
type Converter interface {
	Append(dst []byte, schema *connect.Schema, v connect.Value) (out []byte, null bool, err error)
}

// StringConverter is org.apache.kafka.connect.storage.StringConverter (Debezium Server's format
// simplestring), in UTF-8: the text that the Java object's toString gives, whatever the schema
// says.
type StringConverter struct{}

// Append implements Converter.
func (StringConverter) Append(dst []byte, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind == connect.Null {
		return dst, true, nil
	}
	out, err := appendString(dst, schema, v)
	if err != nil {
		return dst, false, err
	}
	return out, false, nil
}

// ByteArrayConverter is org.apache.kafka.connect.converters.ByteArrayConverter: bytes as they are,
// and nothing but bytes.
type ByteArrayConverter struct{}

// Append implements Converter.
func (ByteArrayConverter) Append(dst []byte, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema != nil && schema.Type != connect.Bytes {
		return dst, false, fmt.Errorf("ByteArrayConverter takes bytes only, not %s", schema.Type)
	}
	switch v.Kind {
	case connect.Null:
		return dst, true, nil
	case connect.Buffer, connect.ByteArray:
		return append(dst, v.Data...), false, nil
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
func (c BinaryDataConverter) Append(dst []byte, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema == nil || schema.Type == connect.Bytes {
		switch v.Kind {
		case connect.Null:
			return dst, true, nil
		case connect.Buffer, connect.ByteArray:
			return append(dst, v.Data...), false, nil
		default:
		}
	}
	return delegate(c.Delegate, "BinaryDataConverter", dst, schema, v)
}

// LegacyByteArrayConverter is io.debezium.converters.ByteArrayConverter, which came before
// BinaryDataConverter and knows byte[] only. The PostgreSQL connector gives bytea as a ByteBuffer,
// so that even bytes go to the delegate there.
type LegacyByteArrayConverter struct {
	Delegate Converter // nil: none
}

// Append implements Converter.
func (c LegacyByteArrayConverter) Append(dst []byte, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema == nil || schema.Type == connect.Bytes {
		switch v.Kind {
		case connect.Null:
			return dst, true, nil
		case connect.ByteArray:
			return append(dst, v.Data...), false, nil
		default:
		}
	}
	return delegate(c.Delegate, "ByteArrayConverter of Debezium", dst, schema, v)
}

func delegate(to Converter, name string, dst []byte, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if to == nil {
		what := "this value"
		if schema != nil {
			what = schema.Type.String()
		}
		return dst, false, fmt.Errorf("%s has no delegate.converter.type for %s", name, what)
	}
	return to.Append(dst, schema, v)
}
