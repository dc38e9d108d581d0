// Package columns makes Kafka Connect's schemas and values of PostgreSQL's columns, as Debezium's
// connector does. It is pure.
package columns

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Column makes values of one column's text. It is never changed, and may be used by many at once.
type Column struct {
	Name   string
	Schema *connect.Schema
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
func (c *Column) Value(scratch, text []byte) (connect.Value, []byte, error) {
	if text == nil {
		if c.Schema.Default != nil {
			return *c.Schema.Default, scratch, nil
		}
		return connect.Value{}, scratch, nil
	}
	v, scratch, err := c.read(scratch, text)
	if errors.Is(err, errOutOfRange) && c.Schema.Optional {
		// JdbcValueConverters.handleUnknownData: a warning, and null
		return c.Value(scratch, nil)
	}
	if err != nil {
		return connect.Value{}, scratch, fmt.Errorf("column %q: %w", c.Name, err)
	}
	return v, scratch, nil
}

// Binary is Value of a bytea whose bytes are there already, as those of an event's payload are.
func (c *Column) Binary(scratch, data []byte) (connect.Value, []byte, error) {
	if c.raw == nil {
		return connect.Value{}, scratch, fmt.Errorf("column %q is no bytea", c.Name)
	}
	if data == nil {
		return c.Value(scratch, nil)
	}
	return c.raw(scratch, data)
}

// simple are the types whose schema depends on nothing but the type.
var simple = map[uint32]columnKind{
	pgtype.BoolOID:    {schema: connect.Schema{Type: connect.Boolean}, read: readBool, parse: parseBool, filler: "false"},
	pgtype.Int2OID:    {schema: connect.Schema{Type: connect.Int16}, read: readInt16, parse: readInt16, filler: "0"},
	pgtype.Int4OID:    {schema: connect.Schema{Type: connect.Int32}, read: readInt32, parse: readInt32, filler: "0"},
	pgtype.Int8OID:    {schema: connect.Schema{Type: connect.Int64}, read: readInt64, parse: readInt64, filler: "0"},
	pgtype.OIDOID:     {schema: connect.Schema{Type: connect.Int64}, read: readInt64},
	pgtype.Float4OID:  {schema: connect.Schema{Type: connect.Float32}, read: readFloat32, parse: readFloat32, filler: "0.0"},
	pgtype.Float8OID:  {schema: connect.Schema{Type: connect.Float64}, read: readFloat64, parse: readFloat64, filler: "0.0"},
	pgtype.TextOID:    {schema: connect.Schema{Type: connect.String}, read: readText, parse: readText, filler: ""},
	pgtype.VarcharOID: {schema: connect.Schema{Type: connect.String}, read: readText, parse: readText, filler: ""},
	pgtype.QCharOID:   {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.JSONOID:    {schema: logical(connect.String, "io.debezium.data.Json"), read: readText, parse: readText, filler: "{}"},
	pgtype.JSONBOID:   {schema: logical(connect.String, "io.debezium.data.Json"), read: readText, parse: readText, filler: "{}"},
	pgtype.XMLOID:     {schema: logical(connect.String, "io.debezium.data.Xml"), read: readText, parse: readText, filler: ""},
	pgtype.UUIDOID:    {schema: logical(connect.String, "io.debezium.data.Uuid"), read: readText, parse: parseUUID, filler: "00000000-0000-0000-0000-000000000000"},
	// plain strings, of which no defaults are read
	pgtype.InetOID:      {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.CIDROID:      {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.MacaddrOID:   {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.Macaddr8OID:  {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.Int4rangeOID: {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.Int8rangeOID: {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.NumrangeOID:  {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.DaterangeOID: {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.TsrangeOID:   {schema: connect.Schema{Type: connect.String}, read: readText},
	pgtype.TstzrangeOID: {schema: connect.Schema{Type: connect.String}, read: readText},
}

func kindOf(shape event.ColumnShape, modes Modes) (columnKind, error) {
	if shape.Labels != nil {
		return enumKind(shape.Labels), nil
	}
	if kind, ok := simple[shape.TypeOID]; ok {
		return kind, nil
	}
	switch shape.TypeOID {
	case pgtype.BPCharOID:
		return columnKind{schema: connect.Schema{Type: connect.String}, read: readChar(int(shape.Typmod) - 4), parse: readText, filler: ""}, nil
	case pgtype.NumericOID:
		return numericKind(shape.Typmod, modes.Decimal)
	case pgtype.ByteaOID:
		return byteaKind(modes.Binary), nil
	case pgtype.DateOID:
		return dateKind(modes.Time), nil
	case pgtype.TimeOID:
		return timeKind(digits(shape.Typmod), modes.Time), nil
	case pgtype.TimetzOID:
		return columnKind{schema: logical(connect.String, "io.debezium.time.ZonedTime"), read: readTimetz}, nil
	case pgtype.TimestampOID:
		return timestampKind(digits(shape.Typmod), modes.Time), nil
	case pgtype.TimestamptzOID:
		return timestamptzKind(digits(shape.Typmod)), nil
	}
	if shape.Type != "" {
		return columnKind{}, fmt.Errorf("type %s is not supported here", shape.Type)
	}
	if t, ok := pgtype.NewMap().TypeForOID(shape.TypeOID); ok {
		return columnKind{}, fmt.Errorf("type %s is not supported here", t.Name)
	}
	if shape.TypeOID < event.FirstMadeType {
		return columnKind{}, errors.New("its type is not supported here")
	}
	// an enum, as a rule, that was dropped before an earlier version read the row
	return simple[pgtype.TextOID], nil
}

// digits is the number of digits of a second's fraction that a time or timestamp keeps.
func digits(typmod int32) int {
	if typmod < 0 {
		return 6
	}
	return int(min(typmod, 6))
}
