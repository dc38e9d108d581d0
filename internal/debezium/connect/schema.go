// Package connect is Kafka Connect's data model as far as the rows of an outbox need it: schemas,
// values, names. columns makes them of PostgreSQL's columns, expand of a JSON payload; converter
// makes bytes of them.
//
// It is pure: no I/O, no clock, no goroutine. The rules are those of Kafka Connect 4.3 (api, json)
// and of Debezium 3.6.1.Final (PostgreSQL connector, outbox Event Router, converters);
// converter/testdata holds what these gave for our questions.
package connect

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
