// Decimals: java.math.BigDecimal, an unscaled integer and a scale.

package connect

import (
	"math/big"
	"strconv"
)

// parseDecimal reads what PostgreSQL prints for a numeric ("-12.340") and appends its unscaled value (-12340) in the shortest
// two's complement, as BigInteger.toByteArray gives it, to scratch. Special values are not decimals: see column.go.
func parseDecimal(scratch, text []byte) (v Value, _ []byte, err error) {
	digits := make([]byte, 0, 64) // on the stack for all but very long ones
	scale, point := 0, false
	for i, c := range text {
		switch {
		case c >= '0' && c <= '9':
			digits = append(digits, c)
			if point {
				scale++
			}
		case c == '.' && !point:
			point = true
		case (c == '-' || c == '+') && i == 0:
			if c == '-' {
				digits = append(digits, c)
			}
		default:
			return Value{}, scratch, errNotIts
		}
	}
	start := len(scratch)
	if len(digits) <= 18 {
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return Value{}, scratch, errNotIts
		}
		scratch = appendInt(scratch, n)
	} else {
		n, ok := new(big.Int).SetString(string(digits), 10)
		if !ok {
			return Value{}, scratch, errNotIts
		}
		scratch = appendBig(scratch, n)
	}
	return Value{Kind: Decimal, Scale: int32(scale), Data: scratch[start:len(scratch):len(scratch)]}, scratch, nil
}

// appendInt appends n in the shortest big-endian two's complement.
func appendInt(dst []byte, n int64) []byte {
	shift := 56
	for shift > 0 && n>>(shift-1) == n>>63 {
		shift -= 8
	}
	for ; shift >= 0; shift -= 8 {
		dst = append(dst, byte(n>>shift))
	}
	return dst
}

// appendBig is appendInt for integers of any size.
func appendBig(dst []byte, n *big.Int) []byte {
	if n.IsInt64() {
		return appendInt(dst, n.Int64())
	}
	length := n.BitLen()/8 + 1
	if n.Sign() < 0 {
		// -2^(8k-1) fits in k bytes, which BitLen of its magnitude does not say.
		length = new(big.Int).Not(n).BitLen()/8 + 1
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*length)))
	}
	for range length {
		dst = append(dst, 0)
	}
	n.FillBytes(dst[len(dst)-length:])
	return dst
}

// unscaled is the value's unscaled integer as decimal digits with a sign.
func (v Value) unscaled(dst []byte) []byte {
	if len(v.Data) <= 8 {
		n := int64(0)
		for i, b := range v.Data {
			if i == 0 {
				n = int64(int8(b))
				continue
			}
			n = n<<8 | int64(b)
		}
		return strconv.AppendInt(dst, n, 10)
	}
	n := new(big.Int).SetBytes(v.Data)
	if v.Data[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.Data))))
	}
	return n.Append(dst, 10)
}

// appendDecimal appends the value as BigDecimal.toString does: plain, or with an exponent when the scale is negative or more
// than six zeros would follow the point (0.00000001 is 1E-8).
func appendDecimal(dst []byte, v Value) []byte {
	var scratch [64]byte
	digits := v.unscaled(scratch[:0])
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	if v.Scale == 0 {
		return append(dst, digits...)
	}
	exponent := len(digits) - 1 - int(v.Scale)
	if v.Scale > 0 && exponent >= -6 {
		return appendPoint(dst, digits, int(v.Scale))
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

// appendPoint appends digits with a point before the last scale of them.
func appendPoint(dst, digits []byte, scale int) []byte {
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
