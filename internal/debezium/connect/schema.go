// Package connect is Kafka Connect's data model as far as the rows of an outbox need it: schemas,
// values, names, made of PostgreSQL's columns and of a JSON payload. converter makes bytes of them.
//
// It is pure: no I/O, no clock, no goroutine. The rules are those of Kafka Connect 4.3 (api, json)
// and of Debezium 3.6.1.Final (PostgreSQL connector, outbox Event Router, converters);
// converter/testdata holds what these gave for our questions.
package connect

import (
	"strconv"
	"unicode"
	"unicode/utf16"
)

// Type is a schema's type.
type Type uint8

// The types of Kafka Connect that a column of an outbox, or an expanded JSON payload, can have.
const (
	Boolean Type = iota
	Int16
	Int32
	Int64
	Float32
	Float64
	String
	Bytes
	Array
	Struct
)

// The names of the types in the JSON of a schema (JsonSchema of connect-json).
var typeNames = [...]string{"boolean", "int16", "int32", "int64", "float", "double", "string", "bytes", "array", "struct"}

// String is the type's name in the JSON of a schema.
func (t Type) String() string { return typeNames[t] }

// Schema describes a value. A Schema that is in use is never changed.
type Schema struct {
	Type       Type
	Optional   bool
	Name       string // the logical name, "" for none
	Version    *int32
	Doc        string
	Parameters []Parameter
	Default    *Value
	Items      *Schema // of Array
	Fields     []Field // of Struct
}

// Parameter is one of a schema's parameters; their order is part of the JSON.
type Parameter struct {
	Name, Value string
}

// Field is a field of a Struct.
type Field struct {
	Name   string
	Schema *Schema
}

// The names of Kafka Connect's own logical types of dates and times.
const (
	DateName      = "org.apache.kafka.connect.data.Date"
	TimeName      = "org.apache.kafka.connect.data.Time"
	TimestampName = "org.apache.kafka.connect.data.Timestamp"
)

// MillisPerDay is a day of a Moment.
const MillisPerDay = 24 * 60 * 60 * 1000

// MaxDepth is how deep JSON may be nested: a limit of Jackson's StreamReadConstraints and
// StreamWriteConstraints.
const MaxDepth = 1000

// Versioned is the pointer that Schema.Version wants.
func Versioned(version int32) *int32 { return &version }

// Equal reports whether two schemas are the same in everything that an expanded JSON payload can
// differ in.
func (s *Schema) Equal(other *Schema) bool {
	if s == nil || other == nil {
		return s == other
	}
	if s.Type != other.Type || s.Optional != other.Optional || s.Name != other.Name || len(s.Fields) != len(other.Fields) ||
		!s.Items.Equal(other.Items) {
		return false
	}
	for i := range s.Fields {
		if s.Fields[i].Name != other.Fields[i].Name || !s.Fields[i].Schema.Equal(other.Fields[i].Schema) {
			return false
		}
	}
	return true
}

// Kind says which Java object a value is: the converters that ask an object for its text need to
// know.
type Kind uint8

// The kinds of values.
const (
	Null      Kind = iota
	Bool           // Int is 0 or 1
	Integer        // Int; of Int16, Int32 and Int64
	Float          // Float; of Float32 and Float64
	Text           // Data, UTF-8
	Buffer         // Data; a java.nio.ByteBuffer, as the PostgreSQL connector gives bytea
	ByteArray      // Data; a byte[], the value inside a VariableScaleDecimal
	// Data is the unscaled value in two's complement, Scale its scale; a java.math.BigDecimal
	Decimal
	Moment // Int, milliseconds since 1970; a java.util.Date
	List   // Items
	Record // Items, in the order of the schema's fields; a Struct
)

// Value is a value of Kafka Connect. Data refers to the bytes that it was made of, or to the
// caller's scratch buffer.
type Value struct {
	Kind  Kind
	Scale int32
	Int   int64
	Float float64
	Data  []byte
	Items []Value
}

// TextValue is a string.
func TextValue(text []byte) Value { return Value{Kind: Text, Data: text} }

// NameMode is schema.name.adjustment.mode or field.name.adjustment.mode; "" is none.
type NameMode string

// NameModes are the values of the two options.
var NameModes = []string{"none", "avro", "avro_unicode"}

func (m NameMode) adjusts() bool { return m != "" && m != "none" }

// Schema is the schema's name under the mode (SchemaNameAdjuster.validFullname).
func (m NameMode) Schema(name string) string { return m.adjust(name, true) }

// Field is the field's name under the mode: as a schema's, but that a dot is no part of it.
func (m NameMode) Field(name string) string { return m.adjust(name, false) }

// AdjustedMost is how many bytes the modes make of one, at most.
const AdjustedMost = 6

// adjust goes by UTF-16 units, as Java does: a character beyond the BMP is replaced twice.
func (m NameMode) adjust(name string, dot bool) string {
	if !m.adjusts() || name == "" {
		return name
	}
	var out []byte
	for i, unit := range utf16.Encode([]rune(name)) {
		alphabetic := unit >= 'a' && unit <= 'z' || unit >= 'A' && unit <= 'Z' || unit == '_' && m == "avro"
		digit := unit >= '0' && unit <= '9'
		switch {
		case alphabetic || i > 0 && (digit || dot && unit == '.'):
			out = append(out, byte(unit))
		case m == "avro":
			out = append(out, '_')
			if i == 0 && unicode.IsDigit(rune(unit)) {
				out = append(out, string(rune(unit))...)
			}
		default:
			out = append(out, "_u"...)
			if unit <= 0xFF {
				out = append(out, "00"...)
			}
			out = strconv.AppendUint(out, uint64(unit), 16)
		}
	}
	return string(out)
}
