// Floating point numbers as Java writes them.

package javatext

import (
	"math"
	"strconv"
)

// AppendFloat appends f as Double.toString does, of 32 bits as Float.toString, in Java 19 and newer
// (Debezium 3.6 wants 21): the shortest decimal that reads back as f, but of at least two digits,
// and of those the one nearest to f. Plain from 10^-3 to below 10^7, else with an exponent.
func AppendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	if math.Signbit(f) {
		dst = append(dst, '-')
		f = -f
	}
	if f == 0 {
		return append(dst, "0.0"...)
	}
	var scratch [32]byte
	digits, exponent := shortest(scratch[:0], f, bits)
	if exponent < -3 || exponent >= 7 {
		dst = append(dst, digits[0], '.')
		dst = appendRest(dst, digits[1:])
		dst = append(dst, 'E')
		return strconv.AppendInt(dst, int64(exponent), 10)
	}
	if exponent < 0 {
		dst = append(dst, "0."...)
		for range -exponent - 1 {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	if len(digits) <= exponent+1 {
		dst = append(dst, digits...)
		for range exponent + 1 - len(digits) {
			dst = append(dst, '0')
		}
		return append(dst, ".0"...)
	}
	dst = append(dst, digits[:exponent+1]...)
	dst = append(dst, '.')
	return append(dst, digits[exponent+1:]...)
}

// shortest gives the digits of f, without zeros at the end, and the exponent of the first. Go's
// shortest form is Java's, but for two things: Java looks among the decimals of two digits even
// where one digit would do (4.9E-324, not 5.0E-324), and of two that are equally near it takes the
// even one (2^-12 as a float is 2.4414062E-4).
func shortest(scratch []byte, f float64, bits int) (digits []byte, exponent int) {
	digits, exponent = split(strconv.AppendFloat(scratch, f, 'e', -1, bits))
	var other [32]byte
	nearest := strconv.AppendFloat(other[:0], f, 'e', max(len(digits), 2)-1, bits)
	if same, err := strconv.ParseFloat(string(nearest), bits); err != nil || same != f {
		return digits, exponent
	}
	digits, exponent = split(append(scratch[:0], nearest...))
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return digits, exponent
}

func appendRest(dst, digits []byte) []byte {
	if len(digits) == 0 {
		return append(dst, '0')
	}
	return append(dst, digits...)
}

// split reads "d.ddde±xx": the digits without the point, in place, and the exponent.
func split(text []byte) (digits []byte, exponent int) {
	end := len(text) - 1
	for text[end] != 'e' {
		end--
	}
	for _, c := range text[end+2:] {
		exponent = 10*exponent + int(c-'0')
	}
	if text[end+1] == '-' {
		exponent = -exponent
	}
	if end == 1 {
		return text[:1], exponent
	}
	text[1] = text[0] // over the point
	return text[1:end], exponent
}
