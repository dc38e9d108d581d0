// PostgreSQL's text of a numeric, read into an unscaled integer and a scale.

package columns

import (
	"math/big"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// parseDecimal reads what PostgreSQL prints for a numeric ("-12.340") and appends its unscaled
// value (-12340) in the shortest two's complement, as BigInteger.toByteArray gives it, to scratch.
// Special values are not decimals: see numeric.go.
func parseDecimal(scratch, text []byte) (v connect.Value, _ []byte, err error) {
	whole, fraction, _ := strings.Cut(string(text), ".")
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return connect.Value{}, scratch, errNotIts
	}
	start := len(scratch)
	scratch = appendBig(scratch, n)
	return connect.Value{Kind: connect.Decimal, Scale: int32(len(fraction)), Data: scratch[start:len(scratch):len(scratch)]}, scratch, nil
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
