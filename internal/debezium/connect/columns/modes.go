// The connector's options that decide how a column's type becomes a schema.

package columns

// Modes are the connector's handling modes. The zero value is their default.
type Modes struct {
	Binary  BinaryMode
	Time    TimeMode
	Decimal DecimalMode
}

// BinaryMode is binary.handling.mode.
type BinaryMode uint8

// The values of binary.handling.mode.
const (
	BinaryBytes BinaryMode = iota
	BinaryBase64
	BinaryBase64URLSafe
	BinaryHex
)

// BinaryModes are the names of the values of binary.handling.mode, at their places.
var BinaryModes = []string{"bytes", "base64", "base64-url-safe", "hex"}

// TimeMode is time.precision.mode.
type TimeMode uint8

// The values of time.precision.mode.
const (
	TimeAdaptive TimeMode = iota
	TimeAdaptiveMicroseconds
	TimeConnect
	TimeISOString
	TimeMicroseconds
	TimeNanoseconds
)

// TimeModes are the names of the values of time.precision.mode, at their places.
var TimeModes = []string{"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"}

// DecimalMode is decimal.handling.mode.
type DecimalMode uint8

// The values of decimal.handling.mode.
const (
	DecimalPrecise DecimalMode = iota
	DecimalDouble
	DecimalString
)

// DecimalModes are the names of the values of decimal.handling.mode, at their places.
var DecimalModes = []string{"precise", "double", "string"}
