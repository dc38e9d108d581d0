// PostgreSQL's text of a numeric, read into an unscaled integer and a scale.

package columns

import (
	"math/big"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// parseDecimal reads what PostgreSQL prints for a numeric ("-12.340") and appends its unscaled
// value (-12340) in the shortest two's complement, as BigInteger.toByteArray gives it, to scratch.
// Special values are not decimals: see column.go.
func parseDecimal(scratch, text []byte) (v connect.Value, _ []byte, err error) {
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
			return connect.Value{}, scratch, errNotIts
		}
	}
	start := len(scratch)
	if len(digits) <= 18 {
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return connect.Value{}, scratch, errNotIts
		}
		scratch = appendInt(scratch, n)
	} else {
		n, ok := new(big.Int).SetString(string(digits), 10)
		if !ok {
			return connect.Value{}, scratch, errNotIts
		}
		scratch = appendBig(scratch, n)
	}
	return connect.Value{Kind: connect.Decimal, Scale: int32(scale), Data: scratch[start:len(scratch):len(scratch)]}, scratch, nil
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
