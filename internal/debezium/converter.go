// Makes the bytes of a message's key, value or header of a value and its schema, as Kafka Connect's
// and Debezium's converters do.

package debezium

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// Converter is one of Kafka Connect's converters, or of Debezium's.
//
// Append appends the value's bytes to dst, which does not become longer than limit. null says that
// there are none: the record's key, value or header is null, which an empty string is not. schema
// is nil only for the null that a tombstone is, and for a payload whose expansion left none. An
// error is ErrLimit, or what makes Debezium's task fail; it never holds the value, and out means
// nothing then.
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
		return connect.QuotedSize(s)
	}
	return connect.QuotedMost * len(s)
}

// textFits reports whether a text with its escapes fits into room bytes.
func textFits[T string | []byte](room int, s T) bool {
	return room >= connect.QuotedMost*len(s) || room >= connect.QuotedSize(s)
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
	dst, err := appendString(dst, limit, schema, v)
	return dst, false, err
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
//
// Legacy makes it io.debezium.converters.ByteArrayConverter, which came before and knows byte[]
// only. The PostgreSQL connector gives bytea as a ByteBuffer, so that even bytes go to the delegate
// there.
type BinaryDataConverter struct {
	Delegate Converter // nil: none
	Legacy   bool
}

// Append implements Converter.
func (c BinaryDataConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema == nil || schema.Type == connect.Bytes {
		switch {
		case v.Kind == connect.Null:
			return dst, true, nil
		case v.Kind == connect.ByteArray, v.Kind == connect.Buffer && !c.Legacy:
			return appendBytes(dst, limit, v)
		}
	}
	if c.Delegate != nil {
		return c.Delegate.Append(dst, limit, schema, v)
	}
	what := "this value"
	if schema != nil {
		what = schema.Type.String()
	}
	return dst, false, errors.New("the converter for bytes has no delegate.converter.type for " + what)
}

func appendBytes(dst []byte, limit int, v connect.Value) ([]byte, bool, error) {
	if !fits(dst, limit, v) {
		return dst, false, ErrLimit
	}
	return append(dst, v.Data...), false, nil
}

// SimpleHeaderConverter is org.apache.kafka.connect.storage.SimpleHeaderConverter: scalars as their
// text without quotes, bytes as base64, null as a null header value (Values.convertToString of
// connect-api).
type SimpleHeaderConverter struct{}

// Append implements Converter.
func (SimpleHeaderConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind == connect.Null {
		return dst, true, nil
	}
	dst, err := appendHeader(dst, limit, schema, v, false)
	return dst, false, err
}

// appendHeader appends a value; one that is embedded in a list or struct has quotes where it is a
// string or bytes.
func appendHeader(dst []byte, limit int, schema *connect.Schema, v connect.Value, embedded bool) (_ []byte, err error) {
	if !fits(dst, limit, v) {
		return dst, ErrLimit
	}
	limit-- // for the end of a list or struct
	switch v.Kind {
	case connect.Text:
		if embedded {
			return appendEmbedded(dst, v.Data), nil
		}
		return append(dst, v.Data...), nil
	case connect.Buffer, connect.ByteArray:
		if embedded {
			return appendBase64(dst, v.Data), nil
		}
		return base64.StdEncoding.AppendEncode(dst, v.Data), nil
	case connect.Moment:
		return appendHeaderMoment(dst, v), nil
	case connect.List, connect.Record:
		return members(dst, limit, schema, v, headerForm, func(dst []byte, s *connect.Schema, item connect.Value) ([]byte, error) {
			return appendHeader(dst, limit, s, item, true)
		})
	default:
		return appendString(dst, limit, schema, v)
	}
}

// appendEmbedded quotes a string, and escapes in it quotes and backslashes only.
func appendEmbedded(dst, s []byte) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// appendHeaderMoment chooses the pattern by the value, not by the schema, as Values.dateFormatFor
// does: a time for everything before 1970-01-02, a date for midnights, else a timestamp.
func appendHeaderMoment(dst []byte, v connect.Value) []byte {
	switch {
	case v.Int < connect.MillisPerDay:
		return moment(v).AppendFormat(dst, "15:04:05.000Z")
	case v.Int%connect.MillisPerDay == 0:
		return moment(v).AppendFormat(dst, "2006-01-02")
	default:
		return moment(v).AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
}

// appendString appends what the object's toString gives.
func appendString(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, error) {
	if !fits(dst, limit, v) {
		return dst, ErrLimit
	}
	switch v.Kind {
	case connect.Null: // inside a list; String.valueOf(null)
		return append(dst, "null"...), nil
	case connect.Bool:
		return strconv.AppendBool(dst, v.Int != 0), nil
	case connect.Integer:
		return strconv.AppendInt(dst, v.Int, 10), nil
	case connect.Float:
		return connect.AppendFloat(dst, v.Float, floatBits(schema)), nil
	case connect.Text:
		return append(dst, v.Data...), nil
	case connect.Decimal:
		return connect.AppendDecimal(dst, v), nil
	case connect.Buffer:
		// This is the toString of java.nio.HeapByteBuffer. It is of no use, but Debezium sends it.
		dst = append(dst, "java.nio.HeapByteBuffer[pos=0 lim="...)
		dst = strconv.AppendInt(dst, int64(len(v.Data)), 10)
		dst = append(dst, " cap="...)
		dst = strconv.AppendInt(dst, int64(len(v.Data)), 10)
		return append(dst, ']'), nil
	case connect.Moment:
		if v.Int < gregorian {
			return dst, errors.New("a date before 1582-10-15 under time.precision.mode connect has no text here")
		}
		return moment(v).AppendFormat(dst, "Mon Jan 02 15:04:05 UTC 2006"), nil
	case connect.List, connect.Record:
		// Struct.put, before any converter, looks at the types of values
		if err := misfit(schema, v); err != nil {
			return dst, err
		}
		return members(dst, limit-1, schema, v, textForm, func(dst []byte, s *connect.Schema, item connect.Value) ([]byte, error) {
			if err := misfit(s, item); err != nil {
				return dst, err
			}
			return appendString(dst, limit-1, s, item)
		})
	default:
		// A byte[]'s toString is its address.
		return dst, errors.New("a byte array has no text that is the same twice; use another converter")
	}
}

// form is how a list or a struct is written.
type form struct {
	list, record, equals string // what begins them; what follows the name of a field
	comma                string // of a list
	name                 func(dst []byte, name string) []byte
	nulls                bool // of a struct, too
}

var (
	jsonForm   = form{"[", "{", ":", ",", func(dst []byte, name string) []byte { return connect.AppendQuoted(dst, name) }, true}
	headerForm = form{"[", "{", ":", ",", func(dst []byte, name string) []byte { return appendEmbedded(dst, []byte(name)) }, true}
	// AbstractCollection.toString and Struct.toString, which leaves out fields that are null
	textForm = form{"[", "Struct{", "=", ", ", func(dst []byte, name string) []byte { return append(dst, name...) }, false}
)

// members appends the members of a list or struct, each by one, between its brackets.
func members(dst []byte, limit int, s *connect.Schema, v connect.Value, f form, one func(dst []byte, s *connect.Schema, item connect.Value) ([]byte, error)) (_ []byte, err error) {
	record := v.Kind == connect.Record
	comma, closing := f.comma, byte(']')
	if record {
		dst, comma, closing = append(dst, f.record...), ",", '}'
	} else {
		dst = append(dst, f.list...)
	}
	for i, n := 0, 0; i < len(v.Items); i++ {
		if record && !f.nulls && v.Items[i].Kind == connect.Null {
			continue
		}
		if n++; n > 1 {
			dst = append(dst, comma...)
		}
		var of *connect.Schema
		if record {
			field := &s.Fields[i]
			if !textFits(limit-len(dst)-small, field.Name) {
				return dst, ErrLimit
			}
			dst, of = append(f.name(dst, field.Name), f.equals...), field.Schema
		} else {
			of = s.Items
		}
		if dst, err = one(dst, of, v.Items[i]); err != nil {
			return dst, err
		}
	}
	return append(dst, closing), nil
}

// misfit says whether a value is not of its schema's type where that can happen: after an expansion
// that failed half-way, whose schema is the expanded one and whose value is the text.
func misfit(s *connect.Schema, v connect.Value) error {
	switch {
	case s == nil:
	case v.Kind == connect.Text && s.Type != connect.String:
		return fmt.Errorf("a string where the schema says %s", s.Type)
	case v.Kind == connect.Record && (s.Type != connect.Struct || len(s.Fields) != len(v.Items)):
		return fmt.Errorf("a struct of %d fields where the schema says %s of %d", len(v.Items), s.Type, len(s.Fields))
	case v.Kind == connect.Record && len(s.Fields) > 0 && s.Fields[0].Schema == nil:
		return errors.New("a struct whose first field, the payload, has no schema")
	}
	return nil
}

// floatBits is the number of bits of a float.
func floatBits(schema *connect.Schema) int {
	if schema != nil && schema.Type == connect.Float32 {
		return 32
	}
	return 64
}

// gregorian is 1582-10-15, before which the calendar of java.util.Date is Julian.
const gregorian = -12219292800000

// moment is a java.util.Date in UTC, the time zone that we take Debezium's JVM to have.
func moment(v connect.Value) time.Time { return time.UnixMilli(v.Int).UTC() }
