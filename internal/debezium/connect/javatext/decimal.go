// Package javatext writes numbers and strings as Java and Jackson do. It is pure.
package javatext

import (
	"math/big"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// Unscaled is the value's unscaled integer as decimal digits with a sign.
func Unscaled(dst []byte, v connect.Value) []byte {
	n := new(big.Int).SetBytes(v.Data)
	if v.Data[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.Data))))
	}
	return n.Append(dst, 10)
}

// AppendDecimal appends the value as BigDecimal.toString does: plain, or with an exponent when the
// scale is negative or more than six zeros would follow the point (0.00000001 is 1E-8).
func AppendDecimal(dst []byte, v connect.Value) []byte {
	var scratch [64]byte
	digits := Unscaled(scratch[:0], v)
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	if v.Scale == 0 {
		return append(dst, digits...)
	}
	exponent := len(digits) - 1 - int(v.Scale)
	if v.Scale > 0 && exponent >= -6 {
		return AppendPoint(dst, digits, int(v.Scale))
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	if exponent != 0 {
		dst = append(dst, 'E')
		if exponent > 0 {
			dst = append(dst, '+')
		}
		dst = strconv.AppendInt(dst, int64(exponent), 10)
	}
	return dst
}

// AppendPoint appends digits with a point before the last scale of them.
func AppendPoint(dst, digits []byte, scale int) []byte {
	if whole := len(digits) - scale; whole > 0 {
		dst = append(dst, digits[:whole]...)
		digits = digits[whole:]
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, '.')
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}
