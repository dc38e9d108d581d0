// JsonConverter: values as JSON, with their schema beside them when that is wanted.

package connect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// JSONConverter is org.apache.kafka.connect.json.JsonConverter (Debezium Server's formats json and jsonbytearray). The zero
// value is not its default: that has Schemas and ReplaceNulls set.
type JSONConverter struct {
	Schemas      bool // schemas.enable: {"schema":…,"payload":…}
	Numeric      bool // decimal.format NUMERIC instead of BASE64
	ReplaceNulls bool // replace.null.with.default
}

// Append implements Converter. Nothing but the null of a tombstone, which has no schema, is null: a null that has a schema is
// the text null.
func (c JSONConverter) Append(dst []byte, schema *Schema, v Value) ([]byte, bool, error) {
	if schema == nil && v.Kind == Null {
		return dst, true, nil
	}
	out := dst
	var err error
	if c.Schemas {
		out = append(out, `{"schema":`...)
		if out, err = c.appendSchema(out, schema, ""); err != nil {
			return dst, false, err
		}
		out = append(out, `,"payload":`...)
	}
	if out, err = c.appendValue(out, schema, v); err != nil {
		return dst, false, err
	}
	if c.Schemas {
		out = append(out, '}')
	}
	return out, false, nil
}

// appendSchema appends a schema's JSON (JsonConverter.asJsonSchema): the keys in this order, and the field's name last.
func (c JSONConverter) appendSchema(dst []byte, s *Schema, field string) (_ []byte, err error) {
	if s == nil {
		return append(dst, "null"...), nil
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, s.Type.String()...)
	dst = append(dst, '"')
	switch s.Type {
	case Array:
		dst = append(dst, `,"items":`...)
		if dst, err = c.appendSchema(dst, s.Items, ""); err != nil {
			return dst, err
		}
	case Struct:
		dst = append(dst, `,"fields":[`...)
		for i := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = c.appendSchema(dst, s.Fields[i].Schema, s.Fields[i].Name); err != nil {
				return dst, err
			}
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"optional":`...)
	dst = strconv.AppendBool(dst, s.Optional)
	if s.Name != "" {
		dst = appendQuoted(append(dst, `,"name":`...), s.Name)
	}
	if s.Version != nil {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(*s.Version), 10)
	}
	if s.Doc != "" {
		dst = appendQuoted(append(dst, `,"doc":`...), s.Doc)
	}
	if len(s.Parameters) > 0 {
		dst = append(dst, `,"parameters":{`...)
		for i, p := range s.Parameters {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendQuoted(append(appendQuoted(dst, p.Name), ':'), p.Value)
		}
		dst = append(dst, '}')
	}
	if s.Default != nil {
		if dst, err = c.appendValue(append(dst, `,"default":`...), s, *s.Default); err != nil {
			return dst, err
		}
	}
	if field != "" {
		dst = appendQuoted(append(dst, `,"field":`...), field)
	}
	return append(dst, '}'), nil
}

// appendValue appends a value's JSON (JsonConverter.convertToJson).
func (c JSONConverter) appendValue(dst []byte, s *Schema, v Value) ([]byte, error) {
	switch v.Kind {
	case Null:
		switch {
		case s != nil && s.Default != nil && c.ReplaceNulls:
			return c.appendValue(dst, s, *s.Default)
		case s == nil || s.Optional:
			return append(dst, "null"...), nil
		}
		return dst, errors.New("null for a column that is required and has no default")
	case Bool:
		return strconv.AppendBool(dst, v.Int != 0), nil
	case Integer:
		return strconv.AppendInt(dst, v.Int, 10), nil
	case Float:
		if math.IsNaN(v.Float) || math.IsInf(v.Float, 0) {
			// Jackson's QUOTE_NON_NUMERIC_NUMBERS
			return append(appendFloat(append(dst, '"'), v.Float, width(s)), '"'), nil
		}
		return appendFloat(dst, v.Float, width(s)), nil
	case Text:
		if s != nil && s.Type != String {
			// What is left of an expansion that failed half-way: the schema is the expanded one, the value is not.
			return dst, fmt.Errorf("a string where the schema says %s", s.Type)
		}
		return appendQuoted(dst, v.Data), nil
	case Buffer, ByteArray:
		return appendBase64(dst, v.Data), nil
	case Decimal:
		if c.Numeric {
			return appendDecimal(dst, v), nil
		}
		return appendBase64(dst, v.Data), nil
	case Moment:
		return appendMoment(dst, s, v)
	case List:
		return c.appendList(dst, s, v)
	case Record:
		return c.appendRecord(dst, s, v)
	default:
		return dst, fmt.Errorf("kind %d is not JSON", v.Kind)
	}
}

func (c JSONConverter) appendList(dst []byte, s *Schema, v Value) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, item := range v.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = c.appendValue(dst, s.Items, item); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func (c JSONConverter) appendRecord(dst []byte, s *Schema, v Value) (_ []byte, err error) {
	if s.Type != Struct || len(s.Fields) != len(v.Items) {
		return dst, fmt.Errorf("a struct of %d fields where the schema says %s of %d", len(v.Items), s.Type, len(s.Fields))
	}
	dst = append(dst, '{')
	for i, item := range v.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, s.Fields[i].Name), ':')
		if dst, err = c.appendValue(dst, s.Fields[i].Schema, item); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendMoment appends Connect's own Date (days), Time or Timestamp (milliseconds). A Time of 24:00:00 is refused there, too.
func appendMoment(dst []byte, s *Schema, v Value) ([]byte, error) {
	const day = 24 * 60 * 60 * 1000
	switch s.Name {
	case connectDate:
		return strconv.AppendInt(dst, v.Int/day, 10), nil
	case connectTime:
		if v.Int < 0 || v.Int >= day {
			return dst, errors.New("a time of 24:00:00 is no org.apache.kafka.connect.data.Time")
		}
	}
	return strconv.AppendInt(dst, v.Int, 10), nil
}

func appendBase64(dst, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), data), '"')
}
