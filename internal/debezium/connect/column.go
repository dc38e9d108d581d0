// Schemas and values of PostgreSQL's columns, as Debezium's connector makes them.

package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Column makes values of one column's text. It is never changed, and may be used by many at once.
type Column struct {
	Name   string
	Schema *Schema
	read   reader
	raw    reader // of bytea
}

// NewColumn is the column with that shape under these modes (PostgresValueConverter and
// TableSchemaBuilder of Debezium). The error names a type that Debezium renders in a way that we do
// not, or not at all.
func NewColumn(shape event.ColumnShape, modes Modes) (*Column, error) {
	kind, err := kindOf(shape, modes)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", shape.Name, err)
	}
	schema := kind.schema
	schema.Optional = !shape.NotNull
	if shape.Default != nil && kind.parse != nil {
		if schema.Default, err = defaultValue(kind, *shape.Default); err != nil {
			return nil, fmt.Errorf("column %q: %w", shape.Name, err)
		}
	}
	return &Column{Name: shape.Name, Schema: &schema, read: kind.read, raw: kind.raw}, nil
}

// Value is the column's value: text as PostgreSQL printed it, nil for NULL. For NULL in a column
// with a default it is the default, because the Event Router asks for its fields with Struct.get,
// which puts the schema's default in the place of a null (the route, the timestamp and the
// partition it asks for otherwise: there NULL is null).
//
// The value refers to text and to scratch, which is returned with what was appended to it. An error
// is one of the row's: its text says what is wrong and not the value.
func (c *Column) Value(scratch, text []byte) (Value, []byte, error) {
	if text == nil {
		if c.Schema.Default != nil {
			return *c.Schema.Default, scratch, nil
		}
		return Value{}, scratch, nil
	}
	v, scratch, err := c.read(scratch, text)
	if errors.Is(err, errOutOfRange) && c.Schema.Optional {
		// JdbcValueConverters.handleUnknownData: a warning, and null
		return c.Value(scratch, nil)
	}
	if err != nil {
		return Value{}, scratch, fmt.Errorf("column %q: %w", c.Name, err)
	}
	return v, scratch, nil
}

// Binary is Value of a bytea whose bytes are there already, as those of an event's payload are.
func (c *Column) Binary(scratch, data []byte) (Value, []byte, error) {
	if c.raw == nil {
		return Value{}, scratch, fmt.Errorf("column %q is no bytea", c.Name)
	}
	if data == nil {
		return c.Value(scratch, nil)
	}
	return c.raw(scratch, data)
}

// simple are the types whose schema depends on nothing but the type.
var simple = map[uint32]columnKind{
	pgtype.BoolOID:    {schema: Schema{Type: Boolean}, read: readBool, parse: parseBool, filler: "false"},
	pgtype.Int2OID:    likeRows(Schema{Type: Int16}, readInt16, "0"),
	pgtype.Int4OID:    likeRows(Schema{Type: Int32}, readInt32, "0"),
	pgtype.Int8OID:    likeRows(Schema{Type: Int64}, readInt64, "0"),
	pgtype.OIDOID:     {schema: Schema{Type: Int64}, read: readInt64},
	pgtype.Float4OID:  likeRows(Schema{Type: Float32}, readFloat32, "0.0"),
	pgtype.Float8OID:  likeRows(Schema{Type: Float64}, readFloat64, "0.0"),
	pgtype.TextOID:    likeRows(Schema{Type: String}, readText, ""),
	pgtype.VarcharOID: likeRows(Schema{Type: String}, readText, ""),
	pgtype.JSONOID:    likeRows(logical(String, "io.debezium.data.Json"), readText, "{}"),
	pgtype.JSONBOID:   likeRows(logical(String, "io.debezium.data.Json"), readText, "{}"),
	pgtype.XMLOID:     likeRows(logical(String, "io.debezium.data.Xml"), readText, ""),
	pgtype.UUIDOID:    {schema: logical(String, "io.debezium.data.Uuid"), read: readText, parse: parseUUID, filler: "00000000-0000-0000-0000-000000000000"},
}

// plainTexts are the types of plain strings of which no defaults are read.
var plainTexts = []uint32{
	pgtype.QCharOID, pgtype.InetOID, pgtype.CIDROID, pgtype.MacaddrOID, pgtype.Macaddr8OID, pgtype.Int4rangeOID, pgtype.Int8rangeOID,
	pgtype.NumrangeOID, pgtype.DaterangeOID, pgtype.TsrangeOID, pgtype.TstzrangeOID,
}

func kindOf(shape event.ColumnShape, modes Modes) (columnKind, error) {
	if shape.Labels != nil {
		return enumKind(shape.Labels), nil
	}
	if kind, ok := simple[shape.TypeOID]; ok {
		return kind, nil
	}
	if slices.Contains(plainTexts, shape.TypeOID) {
		return columnKind{schema: Schema{Type: String}, read: readText}, nil
	}
	switch shape.TypeOID {
	case pgtype.BPCharOID:
		return columnKind{schema: Schema{Type: String}, read: readChar(int(shape.Typmod) - 4), parse: readText, filler: ""}, nil
	case pgtype.NumericOID:
		return numericKind(shape.Typmod, modes.Decimal)
	case pgtype.ByteaOID:
		return byteaKind(modes.Binary), nil
	case pgtype.DateOID:
		return dateKind(modes.Time), nil
	case pgtype.TimeOID:
		return timeKind(fractionDigits(shape.Typmod), modes.Time), nil
	case pgtype.TimetzOID:
		return columnKind{schema: logical(String, "io.debezium.time.ZonedTime"), read: readTimetz}, nil
	case pgtype.TimestampOID:
		return timestampKind(fractionDigits(shape.Typmod), modes.Time), nil
	case pgtype.TimestamptzOID:
		return timestamptzKind(fractionDigits(shape.Typmod)), nil
	}
	name := shape.Type
	if t, ok := pgtype.NewMap().TypeForOID(shape.TypeOID); ok && name == "" {
		name = t.Name
	}
	switch {
	case name != "":
		return columnKind{}, fmt.Errorf("type %s is not supported here", name)
	case shape.TypeOID < event.FirstMadeType:
		return columnKind{}, errors.New("its type is not supported here")
	}
	// an enum, as a rule, that was dropped before an earlier version read the row
	return simple[pgtype.TextOID], nil
}

// fractionDigits is the number of digits of a second's fraction that a time or timestamp keeps.
func fractionDigits(typmod int32) int {
	if typmod < 0 {
		return 6
	}
	return int(min(typmod, 6))
}

// reader makes a value of a text that PostgreSQL printed, with DateStyle ISO and bytea_output hex.
// What it cannot take from text it appends to scratch, and gives back scratch as it is then.
type reader func(scratch, text []byte) (Value, []byte, error)

// columnKind is the kind of a column's values, which follows from its type.
type columnKind struct {
	schema Schema
	read   reader
	raw    reader // of bytea's bytes
	parse  reader // of a default's literal; nil: Debezium reads no defaults of this type
	filler string // what stands for a default that a function makes
	// literal takes a default's literal out of its expression in another way than the usual one;
	// nil: in that one
	literal func(expression string) (string, error)
}

// likeRows is a kind whose defaults are read as its rows are.
func likeRows(schema Schema, read reader, filler string) columnKind {
	return columnKind{schema: schema, read: read, parse: read, filler: filler}
}

// logical is a schema with a name, in Debezium always in version 1.
func logical(t Type, name string) Schema {
	return Schema{Type: t, Name: name, Version: Versioned(1)}
}

var (
	errNotIts     = errors.New("the value is not one of its type")
	errOutOfRange = errors.New("the value has no place in the schema's type")
)

// Modes are the connector's handling modes by their names; "" is the default, the first one.
type Modes struct{ Binary, Time, Decimal string }

// The values of binary.handling.mode, time.precision.mode and decimal.handling.mode.
var (
	BinaryModes  = []string{"bytes", "base64", "base64-url-safe", "hex"}
	TimeModes    = []string{"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"}
	DecimalModes = []string{"precise", "double", "string"}
)

// The patterns by which PostgresDefaultValueConverter tells a function's call from a literal, and
// takes out the literal.
var (
	functionCall = lazy.Regexp(`^[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)`)
	quoted       = lazy.Regexp(`'(.*?)'`)
)

var currentTimes = map[string]bool{
	"current_timestamp": true, "current_time": true, "current_date": true, "localtime": true, "localtimestamp": true,
}

// defaultValue is the default in the column's schema, nil for none: a function's call is the type's
// filler ("" for a text, 0 for a sequence, zeros for a generated UUID), a literal is what stands
// between its first two quotes, and what cannot be read as the type is none.
func defaultValue(kind columnKind, expression string) (*Value, error) {
	text, ok := literal(kind, expression)
	if kind.literal != nil {
		var err error
		text, err = kind.literal(expression)
		ok = err == nil
	}
	if !ok {
		return nil, nil
	}
	if strings.HasSuffix(text, "infinity") && kind.filler == epoch {
		// pgjdbc reads it otherwise than a row's, and into numbers that mean nothing.
		return nil, errors.New("a default of infinity is not supported here")
	}
	v, _, err := kind.parse(nil, []byte(text))
	if err != nil {
		return nil, nil //nolint:nilerr // Debezium warns, and has no default
	}
	return &v, nil
}

// literal is the text of an expression; false for a NULL, and for a quote that has no other.
func literal(kind columnKind, expression string) (text string, ok bool) {
	expression = strings.TrimSpace(expression)
	if functionCall().MatchString(expression) || currentTimes[strings.ToLower(expression)] {
		return kind.filler, true
	}
	if !strings.Contains(expression, "'") {
		return expression, !strings.HasPrefix(expression, "NULL::")
	}
	if found := quoted().FindStringSubmatch(expression); found != nil {
		return found[1], true
	}
	return "", false
}

func enumKind(labels []string) columnKind {
	schema := logical(String, "io.debezium.data.Enum")
	schema.Parameters = []Parameter{{Name: "allowed", Value: strings.Join(labels, ",")}}
	return columnKind{schema: schema, read: readText, literal: enumLiteral, parse: readText}
}

var errNoLiteral = errors.New("the default is no label")

// enumLiteral is the label in a default such as 'new'::state. Debezium takes what stands between
// the first and the last quote as it is, and no other expression.
func enumLiteral(expression string) (string, error) {
	cast := strings.LastIndex(expression, "::")
	if cast < 0 {
		return "", errNoLiteral
	}
	label := expression[:cast]
	if !strings.HasPrefix(label, "'") || !strings.HasSuffix(label, "'") || len(label) < 2 {
		return "", errNoLiteral
	}
	return label[1 : len(label)-1], nil
}

// countReader is a reader of what a value's Int counts.
func countReader(kind Kind, read func(text []byte) (int64, error)) reader {
	return func(scratch, text []byte) (Value, []byte, error) {
		n, err := read(text)
		if err != nil {
			return Value{}, scratch, err
		}
		return Value{Kind: kind, Int: n}, scratch, nil
	}
}

// textReader is a reader of a text that is appended to scratch; false: the value is not one of its
// type.
func textReader(write func(dst, text []byte) ([]byte, bool)) reader {
	return func(scratch, text []byte) (Value, []byte, error) {
		start := len(scratch)
		scratch, ok := write(scratch, text)
		if !ok {
			return Value{}, scratch[:start], errNotIts
		}
		return TextValue(scratch[start:len(scratch):len(scratch)]), scratch, nil
	}
}

var (
	readBool = countReader(Bool, func(text []byte) (int64, error) { return truth(string(text) == "t"), nil })
	// Boolean.parseBoolean: what is not "true" is false
	parseBool = countReader(Bool, func(text []byte) (int64, error) { return truth(strings.EqualFold(string(text), "true")), nil })

	readInt16, readInt32, readInt64 = readInt(16), readInt(32), readInt(64)
	readFloat32, readFloat64        = readFloat(32), readFloat(64)
)

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func readInt(bits int) reader {
	return countReader(Integer, func(text []byte) (int64, error) {
		n, err := strconv.ParseInt(string(text), 10, bits)
		if err != nil {
			return 0, errNotIts
		}
		return n, nil
	})
}

func readFloat(bits int) reader {
	return func(scratch, text []byte) (Value, []byte, error) {
		f, err := strconv.ParseFloat(string(text), bits)
		if err != nil {
			return Value{}, scratch, errNotIts
		}
		return Value{Kind: Float, Float: f}, scratch, nil
	}
}

func readText(scratch, text []byte) (Value, []byte, error) { return TextValue(text), scratch, nil }

// readChar fills a char(n), of which an event has no trailing blanks, as PostgreSQL does: by
// characters.
func readChar(length int) reader {
	fill := textReader(func(dst, text []byte) ([]byte, bool) {
		return append(append(dst, text...), bytes.Repeat([]byte(" "), length-utf8.RuneCount(text))...), true
	})
	return func(scratch, text []byte) (Value, []byte, error) {
		if utf8.RuneCount(text) >= length {
			return readText(scratch, text)
		}
		return fill(scratch, text)
	}
}

var uuidForm = lazy.Regexp(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// parseUUID is UUID.fromString and back: lower case.
var parseUUID = textReader(func(dst, text []byte) ([]byte, bool) {
	lower := bytes.ToLower(text)
	return append(dst, lower...), uuidForm().Match(lower)
})

// byteaKind is bytea's schema and reader under binary.handling.mode. Debezium reads no defaults of
// it.
func byteaKind(mode string) columnKind {
	schema, raw := Schema{Type: String}, readBuffer
	switch mode {
	case "base64":
		raw = encoded(base64.StdEncoding.AppendEncode)
	case "base64-url-safe":
		raw = encoded(base64.URLEncoding.AppendEncode)
	case "hex":
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

// encoded is a reader that makes text of the bytes of a bytea.
func encoded(appendEncode func(dst, src []byte) []byte) reader {
	return textReader(func(dst, data []byte) ([]byte, bool) { return appendEncode(dst, data), true })
}
