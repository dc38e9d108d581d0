// Values as Java's toString gives them: what StringConverter sends, and most of SimpleHeaderConverter.

package connect

import (
	"errors"
	"strconv"
	"time"
)

// appendString appends what the object's toString gives.
func appendString(dst []byte, schema *Schema, v Value) ([]byte, error) {
	switch v.Kind {
	case Null: // inside a list; String.valueOf(null)
		return append(dst, "null"...), nil
	case Bool:
		return strconv.AppendBool(dst, v.Int != 0), nil
	case Integer:
		return strconv.AppendInt(dst, v.Int, 10), nil
	case Float:
		return appendFloat(dst, v.Float, width(schema)), nil
	case Text:
		return append(dst, v.Data...), nil
	case Decimal:
		return appendDecimal(dst, v), nil
	case Buffer:
		// What java.nio.HeapByteBuffer says of itself; of no use to anybody, but it is what is sent.
		dst = append(dst, "java.nio.HeapByteBuffer[pos=0 lim="...)
		dst = strconv.AppendInt(dst, int64(len(v.Data)), 10)
		dst = append(dst, " cap="...)
		dst = strconv.AppendInt(dst, int64(len(v.Data)), 10)
		return append(dst, ']'), nil
	case Moment:
		at, err := moment(v)
		if err != nil {
			return dst, err
		}
		return at.AppendFormat(dst, "Mon Jan 02 15:04:05 UTC 2006"), nil
	case List:
		return appendListString(dst, schema, v)
	case Record:
		return appendRecordString(dst, schema, v)
	default:
		// A byte[]'s toString is its address.
		return dst, errors.New("a byte array has no text that is the same twice; use another converter")
	}
}

// appendListString is AbstractCollection.toString.
func appendListString(dst []byte, schema *Schema, v Value) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, item := range v.Items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = appendString(dst, schema.Items, item); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// appendRecordString is Struct.toString, which leaves out fields that are null.
func appendRecordString(dst []byte, schema *Schema, v Value) (_ []byte, err error) {
	dst = append(dst, "Struct{"...)
	first := true
	for i, item := range v.Items {
		if item.Kind == Null {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, schema.Fields[i].Name...)
		dst = append(dst, '=')
		if dst, err = appendString(dst, schema.Fields[i].Schema, item); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// width is the number of bits of a float.
func width(schema *Schema) int {
	if schema != nil && schema.Type == Float32 {
		return 32
	}
	return 64
}

// moment is a java.util.Date in UTC, the time zone that we take Debezium's JVM to have. Java's calendar turns Julian in 1582,
// and "yyyy" counts no years before Christ: those are refused.
func moment(v Value) (time.Time, error) {
	at := time.UnixMilli(v.Int).UTC()
	if v.Int < -12219292800000 || at.Year() > 9999 {
		return at, errors.New("a date before 1582-10-15 or after 9999 under time.precision.mode connect has no text here")
	}
	return at, nil
}
