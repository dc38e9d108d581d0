// JsonConverter: values as JSON, with their schema when that is wanted.

package debezium

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// JSONConverter is org.apache.kafka.connect.json.JsonConverter (Debezium Server's formats json and
// jsonbytearray). The zero value is not its default: that has Schemas and ReplaceNulls set.
type JSONConverter struct {
	Schemas      bool // schemas.enable: {"schema":…,"payload":…}
	Numeric      bool // decimal.format NUMERIC instead of BASE64
	ReplaceNulls bool // replace.null.with.default
}

// Append implements Converter. Nothing but the null of a tombstone, which has no schema, is null: a
// null that has a schema is the text null.
func (c JSONConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if schema == nil && v.Kind == connect.Null {
		return dst, true, nil
	}
	if limit-len(dst) < small {
		return dst, false, ErrLimit
	}
	envelope := 0
	var err error
	if c.Schemas {
		envelope = 1
		if dst, err = c.appendSchema(append(dst, `{"schema":`...), limit-small, schema, "", 1); err != nil {
			return dst, false, err
		}
		dst = append(dst, `,"payload":`...)
	}
	dst, err = c.appendValue(dst, limit-1, schema, v, envelope)
	if c.Schemas {
		dst = append(dst, '}')
	}
	return dst, false, err
}

// appendSchema appends a schema's JSON (JsonConverter.asJsonSchema): the keys in this order, and
// the field's name last.
func (c JSONConverter) appendSchema(dst []byte, limit int, s *connect.Schema, field string, depth int) (_ []byte, err error) {
	if s == nil {
		return append(dst, "null"...), nil
	}
	if depth++; depth > connect.MaxDepth {
		return dst, errDeep
	}
	if limit -= schemaRest(s, field); len(dst) > limit {
		return dst, ErrLimit
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, s.Type.String()...)
	dst = append(dst, '"')
	switch s.Type {
	case connect.Array:
		dst = append(dst, `,"items":`...)
		if dst, err = c.appendSchema(dst, limit, s.Items, "", depth); err != nil {
			return dst, err
		}
	case connect.Struct:
		dst = append(dst, `,"fields":[`...)
		for i := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = c.appendSchema(dst, limit, s.Fields[i].Schema, s.Fields[i].Name, depth+1); err != nil {
				return dst, err
			}
		}
		dst = append(dst, ']')
	default:
	}
	dst = append(dst, `,"optional":`...)
	dst = strconv.AppendBool(dst, s.Optional)
	if s.Name != "" {
		dst = connect.AppendQuoted(append(dst, `,"name":`...), s.Name)
	}
	if s.Version != nil {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(*s.Version), 10)
	}
	if s.Doc != "" {
		dst = connect.AppendQuoted(append(dst, `,"doc":`...), s.Doc)
	}
	if len(s.Parameters) > 0 {
		dst = append(dst, `,"parameters":{`...)
		for i, p := range s.Parameters {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = connect.AppendQuoted(append(connect.AppendQuoted(dst, p.Name), ':'), p.Value)
		}
		dst = append(dst, '}')
	}
	if s.Default != nil {
		if dst, err = c.appendValue(append(dst, `,"default":`...), limit, s, *s.Default, depth); err != nil {
			return dst, err
		}
	}
	if field != "" {
		dst = connect.AppendQuoted(append(dst, `,"field":`...), field)
	}
	return append(dst, '}'), nil
}

// schemaRest is an upper bound of the bytes that a schema's JSON has besides its fields, items and
// default.
func schemaRest(s *connect.Schema, field string) int {
	size := small + textMost(s.Name) + textMost(s.Doc) + textMost(field)
	for _, p := range s.Parameters {
		size += small + textMost(p.Name) + textMost(p.Value)
	}
	return size
}

// appendValue appends a value's JSON (JsonConverter.convertToJson).
//
// depth is that of the arrays and objects around it: Jackson's StreamWriteConstraints allow as many
// as its reader.
func (c JSONConverter) appendValue(dst []byte, limit int, s *connect.Schema, v connect.Value, depth int) ([]byte, error) {
	if err := misfit(s, v); err != nil {
		return dst, err
	}
	if !fits(dst, limit, v) {
		return dst, ErrLimit
	}
	if (v.Kind == connect.List || v.Kind == connect.Record) && depth == connect.MaxDepth {
		return dst, errDeep
	}
	switch v.Kind {
	case connect.Null:
		switch {
		case s != nil && s.Default != nil && c.ReplaceNulls:
			return c.appendValue(dst, limit, s, *s.Default, depth)
		case s == nil || s.Optional:
			return append(dst, "null"...), nil
		}
		return dst, errors.New("null for a column that is required and has no default")
	case connect.Bool:
		return strconv.AppendBool(dst, v.Int != 0), nil
	case connect.Integer:
		return strconv.AppendInt(dst, v.Int, 10), nil
	case connect.Float:
		if math.IsNaN(v.Float) || math.IsInf(v.Float, 0) {
			// Jackson's QUOTE_NON_NUMERIC_NUMBERS
			return append(connect.AppendFloat(append(dst, '"'), v.Float, floatBits(s)), '"'), nil
		}
		return connect.AppendFloat(dst, v.Float, floatBits(s)), nil
	case connect.Text:
		return connect.AppendQuoted(dst, v.Data), nil
	case connect.Buffer, connect.ByteArray:
		return appendBase64(dst, v.Data), nil
	case connect.Decimal:
		if c.Numeric {
			return connect.AppendDecimal(dst, v), nil
		}
		return appendBase64(dst, v.Data), nil
	case connect.Moment:
		if s != nil && s.Name == connect.DateName {
			return strconv.AppendInt(dst, v.Int/connect.MillisPerDay, 10), nil
		}
		return strconv.AppendInt(dst, v.Int, 10), nil
	case connect.List, connect.Record:
		return members(dst, limit-1, s, v, jsonForm, func(dst []byte, s *connect.Schema, item connect.Value) ([]byte, error) {
			return c.appendValue(dst, limit-1, s, item, depth+1)
		})
	default:
		return dst, fmt.Errorf("kind %d is not JSON", v.Kind)
	}
}

var errDeep = errors.New("more than 1,000 arrays and objects within each other")

func appendBase64(dst, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), data), '"')
}
