// numeric under decimal.handling.mode.

package connect

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// numericKind is numeric's schema and reader (PostgresValueConverter.numericSchema,
// convertDecimal).
func numericKind(typmod int32, mode string) (columnKind, error) {
	precision, scale := 0, 0
	if typmod >= 4 {
		precision, scale = int(typmod-4)>>16&0xFFFF, int(typmod-4)&0xFFFF
	}
	if scale > 1000 {
		return columnKind{}, errors.New("type numeric with a negative scale is not supported here")
	}
	variable := precision == 0 && scale == 0
	switch {
	case mode == "double":
		return columnKind{schema: Schema{Type: Float64}, read: readDecimalDouble, parse: decimalDouble(scale, variable), filler: "0.0"}, nil
	case mode == "string":
		return columnKind{schema: Schema{Type: String}, read: readDecimalString, parse: decimalString(scale, variable), filler: "0.0"}, nil
	case variable:
		// A default would be a struct, which Debezium leaves out (KAFKA-12694).
		return columnKind{schema: variableScale, read: readVariableScale}, nil
	}
	schema := Schema{Type: Bytes, Name: "org.apache.kafka.connect.data.Decimal", Version: Versioned(1), Parameters: []Parameter{
		{Name: "scale", Value: strconv.Itoa(scale)}, {Name: "connect.decimal.precision", Value: strconv.Itoa(precision)},
	}}
	return likeRows(schema, fixedScale(scale), "0.0"), nil
}

// variableScale is VariableScaleDecimal: what a numeric without precision is, each value with a
// scale of its own.
var variableScale = Schema{
	Type: Struct, Name: "io.debezium.data.VariableScaleDecimal", Version: Versioned(1), Doc: "Variable scaled decimal",
	Fields: []Field{{Name: "scale", Schema: &Schema{Type: Int32}}, {Name: "value", Schema: &Schema{Type: Bytes}}},
}

// notFinite reads the values of a numeric that are no numbers.
func notFinite(text []byte) (f float64, name string) {
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

var errNotFinite = errors.New("NaN and Infinity need decimal.handling.mode string or double")

// fixedScale reads a decimal and gives it the column's scale; one that has more digits than that
// does not fit.
func fixedScale(scale int) reader {
	return func(scratch, text []byte) (Value, []byte, error) {
		if _, name := notFinite(text); name != "" {
			return Value{}, scratch, errNotFinite
		}
		whole, fraction, _ := strings.Cut(string(text), ".")
		kept := fraction[:min(scale, len(fraction))]
		if strings.Trim(fraction[len(kept):], "0") != "" {
			return Value{}, scratch, errNotIts
		}
		return parseDecimal(scratch, []byte(whole+"."+kept+strings.Repeat("0", scale-len(kept))))
	}
}

func readVariableScale(scratch, text []byte) (Value, []byte, error) {
	if _, name := notFinite(text); name != "" {
		return Value{}, scratch, errNotFinite
	}
	if bytes.IndexByte(text, '.') >= 0 { // BigDecimal.stripTrailingZeros, and no scale below 0
		text = bytes.TrimSuffix(bytes.TrimRight(text, "0"), []byte("."))
	}
	v, scratch, err := parseDecimal(scratch, text)
	if err != nil {
		return v, scratch, err
	}
	return Value{Kind: Record, Items: []Value{{Kind: Integer, Int: int64(v.Scale)}, {Kind: ByteArray, Data: v.Data}}}, scratch, nil
}

// readDecimalDouble is BigDecimal.doubleValue.
func readDecimalDouble(scratch, text []byte) (Value, []byte, error) {
	if f, name := notFinite(text); name != "" {
		return Value{Kind: Float, Float: f}, scratch, nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return Value{}, scratch, errNotIts
	}
	return Value{Kind: Float, Float: f}, scratch, nil
}

// decimalDouble reads a default. Debezium takes a default that the column's scale cannot hold, or
// NaN, for no default.
func decimalDouble(scale int, variable bool) reader {
	exact := decimalString(scale, variable)
	return func(scratch, text []byte) (Value, []byte, error) {
		if _, _, err := exact(nil, text); err != nil {
			return Value{}, scratch, err
		}
		return readDecimalDouble(scratch, text)
	}
}

// readDecimalString is BigDecimal.toPlainString, which is what PostgreSQL prints; the special
// values have names of their own.
func readDecimalString(scratch, text []byte) (Value, []byte, error) {
	if _, name := notFinite(text); name != "" {
		return TextValue([]byte(name)), scratch, nil
	}
	return TextValue(text), scratch, nil
}

// decimalString reads a default, which has the scale it is written with until it gets the column's.
func decimalString(scale int, variable bool) reader {
	fixed := fixedScale(scale)
	return func(scratch, text []byte) (Value, []byte, error) {
		if variable {
			if _, _, err := parseDecimal(nil, text); err != nil {
				return Value{}, scratch, errNotIts
			}
			return TextValue(text), scratch, nil
		}
		v, scratch, err := fixed(scratch, text)
		if err != nil {
			return v, scratch, err
		}
		start := len(scratch)
		scratch = appendPlain(scratch, v)
		return TextValue(scratch[start:]), scratch, nil
	}
}

// appendPlain is BigDecimal.toPlainString of a scale that is not negative.
func appendPlain(dst []byte, v Value) []byte {
	digits := Unscaled(nil, v)
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	if v.Scale == 0 {
		return append(dst, digits...)
	}
	return AppendPoint(dst, digits, int(v.Scale))
}

// parseDecimal reads what PostgreSQL prints for a numeric ("-12.340") and appends its unscaled
// value (-12340) in the shortest two's complement, as BigInteger.toByteArray gives it, to scratch.
// Special values are not decimals: see numeric.go.
func parseDecimal(scratch, text []byte) (v Value, _ []byte, err error) {
	whole, fraction, _ := strings.Cut(string(text), ".")
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = appendBig(scratch, n)
	return Value{Kind: Decimal, Scale: int32(len(fraction)), Data: scratch[start:len(scratch):len(scratch)]}, scratch, nil
}

// appendBig appends n in the shortest big-endian two's complement.
func appendBig(dst []byte, n *big.Int) []byte {
	length := n.BitLen()/8 + 1
	if n.Sign() < 0 {
		// -2^(8k-1) fits in k bytes, which BitLen of its magnitude does not say.
		length = new(big.Int).Not(n).BitLen()/8 + 1
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*length)))
	}
	return append(dst, n.FillBytes(make([]byte, length))...)
}
