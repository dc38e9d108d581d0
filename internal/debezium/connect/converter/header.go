// SimpleHeaderConverter: what Kafka Connect's runtime uses for headers when nothing else is
// configured.

package converter

import (
	"encoding/base64"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// SimpleHeaderConverter is org.apache.kafka.connect.storage.SimpleHeaderConverter: scalars as their
// text without quotes, bytes as base64, null as a null header value (Values.convertToString of
// connect-api).
type SimpleHeaderConverter struct{}

// Append implements Converter.
func (SimpleHeaderConverter) Append(dst []byte, limit int, schema *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind == connect.Null {
		return dst, true, nil
	}
	out, err := appendHeader(dst, limit, schema, v, false)
	if err != nil {
		return dst, false, err
	}
	return out, false, nil
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
			dst = append(dst, '"')
		}
		dst = base64.StdEncoding.AppendEncode(dst, v.Data)
		if embedded {
			dst = append(dst, '"')
		}
		return dst, nil
	case connect.Moment:
		return appendHeaderMoment(dst, v), nil
	case connect.List:
		dst = append(dst, '[')
		for i, item := range v.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendHeader(dst, limit, schema.Items, item, true); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case connect.Record:
		dst = append(dst, '{')
		for i, item := range v.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if !textFits(limit-len(dst)-small, schema.Fields[i].Name) {
				return dst, ErrLimit
			}
			dst = append(appendEmbedded(dst, []byte(schema.Fields[i].Name)), ':')
			if dst, err = appendHeader(dst, limit, schema.Fields[i].Schema, item, true); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
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
