// numeric under decimal.handling.mode.

package columns

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/javatext"
)

// numericKind is numeric's schema and reader (PostgresValueConverter.numericSchema,
// convertDecimal).
func numericKind(typmod int32, mode DecimalMode) (columnKind, error) {
	precision, scale := 0, 0
	if typmod >= 4 {
		precision, scale = int(typmod-4)>>16&0xFFFF, int(typmod-4)&0xFFFF
	}
	if scale > 1000 {
		return columnKind{}, errors.New("type numeric with a negative scale is not supported here")
	}
	variable := precision == 0 && scale == 0
	switch {
	case mode == DecimalDouble:
		return columnKind{schema: connect.Schema{Type: connect.Float64}, read: readDecimalDouble, parse: decimalDouble(scale, variable), filler: "0.0"}, nil
	case mode == DecimalString:
		return columnKind{schema: connect.Schema{Type: connect.String}, read: readDecimalString, parse: decimalString(scale, variable), filler: "0.0"}, nil
	case variable:
		// A default would be a struct, which Debezium leaves out (KAFKA-12694).
		return columnKind{schema: variableScale, read: readVariableScale}, nil
	}
	schema := connect.Schema{Type: connect.Bytes, Name: "org.apache.kafka.connect.data.Decimal", Version: connect.Versioned(1), Parameters: []connect.Parameter{
		{Name: "scale", Value: strconv.Itoa(scale)}, {Name: "connect.decimal.precision", Value: strconv.Itoa(precision)},
	}}
	read := fixedScale(scale)
	return columnKind{schema: schema, read: read, parse: read, filler: "0.0"}, nil
}

// variableScale is VariableScaleDecimal: what a numeric without precision is, each value with a
// scale of its own.
var variableScale = connect.Schema{
	Type: connect.Struct, Name: "io.debezium.data.VariableScaleDecimal", Version: connect.Versioned(1), Doc: "Variable scaled decimal",
	Fields: []connect.Field{{Name: "scale", Schema: &connect.Schema{Type: connect.Int32}}, {Name: "value", Schema: &connect.Schema{Type: connect.Bytes}}},
}

// special reads the values of a numeric that are no numbers.
func special(text []byte) (f float64, name string) {
	switch string(text) {
	case "NaN":
		return math.NaN(), "NAN"
	case "Infinity":
		return math.Inf(1), "POSITIVE_INFINITY"
	case "-Infinity":
		return math.Inf(-1), "NEGATIVE_INFINITY"
	}
	return 0, ""
}

var errSpecial = errors.New("NaN and Infinity need decimal.handling.mode string or double")

// fixedScale reads a decimal and gives it the column's scale; one that has more digits than that
// does not fit.
func fixedScale(scale int) reader {
	return func(scratch, text []byte) (connect.Value, []byte, error) {
		if _, name := special(text); name != "" {
			return connect.Value{}, scratch, errSpecial
		}
		whole, fraction, _ := strings.Cut(string(text), ".")
		kept := fraction[:min(scale, len(fraction))]
		if strings.Trim(fraction[len(kept):], "0") != "" {
			return connect.Value{}, scratch, errNotIts
		}
		return parseDecimal(scratch, []byte(whole+"."+kept+strings.Repeat("0", scale-len(kept))))
	}
}

func readVariableScale(scratch, text []byte) (connect.Value, []byte, error) {
	if _, name := special(text); name != "" {
		return connect.Value{}, scratch, errSpecial
	}
	if bytes.IndexByte(text, '.') >= 0 { // BigDecimal.stripTrailingZeros, and no scale below 0
		text = bytes.TrimSuffix(bytes.TrimRight(text, "0"), []byte("."))
	}
	v, scratch, err := parseDecimal(scratch, text)
	if err != nil {
		return v, scratch, err
	}
	return connect.Value{Kind: connect.Record, Items: []connect.Value{{Kind: connect.Integer, Int: int64(v.Scale)}, {Kind: connect.ByteArray, Data: v.Data}}}, scratch, nil
}

// readDecimalDouble is BigDecimal.doubleValue.
func readDecimalDouble(scratch, text []byte) (connect.Value, []byte, error) {
	if f, name := special(text); name != "" {
		return connect.Value{Kind: connect.Float, Float: f}, scratch, nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return connect.Value{}, scratch, errNotIts
	}
	return connect.Value{Kind: connect.Float, Float: f}, scratch, nil
}

// decimalDouble reads a default: one that the column's scale cannot hold is none, nor is NaN a
// BigDecimal.
func decimalDouble(scale int, variable bool) reader {
	exact := decimalString(scale, variable)
	return func(scratch, text []byte) (connect.Value, []byte, error) {
		if _, _, err := exact(nil, text); err != nil {
			return connect.Value{}, scratch, err
		}
		return readDecimalDouble(scratch, text)
	}
}

// readDecimalString is BigDecimal.toPlainString, which is what PostgreSQL prints; the special
// values have names of their own.
func readDecimalString(scratch, text []byte) (connect.Value, []byte, error) {
	if _, name := special(text); name != "" {
		return connect.TextValue([]byte(name)), scratch, nil
	}
	return connect.TextValue(text), scratch, nil
}

// decimalString reads a default, which has the scale it is written with until it gets the column's.
func decimalString(scale int, variable bool) reader {
	fixed := fixedScale(scale)
	return func(scratch, text []byte) (connect.Value, []byte, error) {
		if variable {
			if _, _, err := parseDecimal(nil, text); err != nil {
				return connect.Value{}, scratch, errNotIts
			}
			return connect.TextValue(text), scratch, nil
		}
		v, scratch, err := fixed(scratch, text)
		if err != nil {
			return v, scratch, err
		}
		start := len(scratch)
		scratch = appendPlain(scratch, v)
		return connect.TextValue(scratch[start:]), scratch, nil
	}
}

// appendPlain is BigDecimal.toPlainString of a scale that is not negative.
func appendPlain(dst []byte, v connect.Value) []byte {
	digits := javatext.Unscaled(nil, v)
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	if v.Scale == 0 {
		return append(dst, digits...)
	}
	return javatext.AppendPoint(dst, digits, int(v.Scale))
}
