// Values: what a schema describes, without an allocation for the scalar ones.

package connect

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
