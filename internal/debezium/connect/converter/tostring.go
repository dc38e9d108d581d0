// Values as Java's toString gives them: what StringConverter sends, and most of
// SimpleHeaderConverter.

package converter

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/javatext"
)

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
		return javatext.AppendFloat(dst, v.Float, width(schema)), nil
	case connect.Text:
		return append(dst, v.Data...), nil
	case connect.Decimal:
		return javatext.AppendDecimal(dst, v), nil
	case connect.Buffer:
		// What java.nio.HeapByteBuffer says of itself; of no use to anybody, but it is what is
		// sent.
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
	case connect.List:
		return appendListString(dst, limit-1, schema, v)
	case connect.Record:
		return appendRecordString(dst, limit-1, schema, v)
	default:
		// A byte[]'s toString is its address.
		return dst, errors.New("a byte array has no text that is the same twice; use another converter")
	}
}

// appendListString is AbstractCollection.toString.
func appendListString(dst []byte, limit int, schema *connect.Schema, v connect.Value) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, item := range v.Items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = appendString(dst, limit, schema.Items, item); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// appendRecordString is Struct.toString, which leaves out fields that are null. That a value is of
// its schema's type is a matter of Struct.put, which comes before any converter.
func appendRecordString(dst []byte, limit int, schema *connect.Schema, v connect.Value) (_ []byte, err error) {
	dst = append(dst, "Struct{"...)
	first := true
	if err := misfit(schema, v); err != nil {
		return dst, err
	}
	for i, item := range v.Items {
		if item.Kind == connect.Null {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if err := misfit(schema.Fields[i].Schema, item); err != nil {
			return dst, err
		}
		if !textFits(limit-len(dst)-small, schema.Fields[i].Name) {
			return dst, ErrLimit
		}
		dst = append(append(dst, schema.Fields[i].Name...), '=')
		if dst, err = appendString(dst, limit, schema.Fields[i].Schema, item); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
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

// width is the number of bits of a float.
func width(schema *connect.Schema) int {
	if schema != nil && schema.Type == connect.Float32 {
		return 32
	}
	return 64
}

// gregorian is 1582-10-15, before which the calendar of java.util.Date is Julian.
const gregorian = -12219292800000

// moment is a java.util.Date in UTC, the time zone that we take Debezium's JVM to have.
func moment(v connect.Value) time.Time { return time.UnixMilli(v.Int).UTC() }
