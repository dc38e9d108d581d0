// One record of a batch, as the log has it.

package batch

import (
	"encoding/binary"
	"math/bits"
)

// Record is one record. Its headers are encoded as they stand in the batch.
type Record struct {
	Key, Value  []byte // nil: null
	Time        int64  // ms since 1970
	Headers     []byte
	HeaderCount int
}

// AddHeader appends one header; a nil value is null.
func (r *Record) AddHeader(name string, value []byte) {
	r.HeaderCount++
	r.Headers = appendNullable(append(appendLength(r.Headers, len(name)), name...), value)
}

// appendNullable appends a byte string whose nil is null.
func appendNullable(buf, s []byte) []byte {
	if s == nil {
		return binary.AppendVarint(buf, -1)
	}
	return append(appendLength(buf, len(s)), s...)
}

// appendLength is binary.AppendVarint, inlined for the lengths that most have.
func appendLength(buf []byte, n int) []byte {
	if n < 64 {
		return append(buf, byte(n<<1))
	}
	return binary.AppendVarint(buf, int64(n))
}

func nullableSize(s []byte) int {
	if s == nil {
		return 1
	}
	return varintSize(int64(len(s))) + len(s)
}

// varintSize is the number of bytes of a zigzag varint.
func varintSize(i int64) int {
	zigzag := uint64(i)<<1 ^ uint64(i>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}
