// The 64-bit digests that distribute events over lanes, keep them in order, and find them in the
// retry table.

package event

import (
	"encoding/binary"
	"math/bits"
)

// Odd constants without structure (the fractional bits of the square roots of 2, 3 and 5).
const (
	mul1 = 0x6a09e667f3bcc909
	mul2 = 0xbb67ae8584caa73b
	mul3 = 0x3c6ef372fe94f82b
)

// HashKey digests an ordering key. It is the same in every process and on every machine, so it has
// no seed, and it takes eight bytes at a time, because a key may be long and this runs for every
// event (FNV-1a takes twice as long for a UUID). The length of the aggregate goes in first: ("ab",
// "c") and ("a", "bc") are two keys.
func HashKey(aggregate, key []byte) uint64 {
	h := fold(uint64(len(aggregate))^mul3, mul1)
	h = hashBytes(h, aggregate)
	return fold(hashBytes(h, key), mul3)
}

// HashPosition digests a position, for an event without an ordering key.
func HashPosition(p Position) uint64 {
	return fold(fold(uint64(p.Commit)^mul1, mul2)^uint64(p.Index), mul3)
}

// HashName digests a name that belongs to what the digest within stands for; 0: to nothing.
func HashName(within uint64, name []byte) uint64 {
	return fold(hashBytes(fold(within^mul2, mul1), name), mul3)
}

func hashBytes(h uint64, b []byte) uint64 {
	n := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h^binary.LittleEndian.Uint64(b), mul1)
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	return fold(h^tail, mul2^n)
}

// fold is the 128-bit product, its halves joined: each bit of it depends on all bits of a and b.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
