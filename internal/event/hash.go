// The 64-bit digests that distribute events over lanes, keep them in order, and find them in the
// retry table; and that of ordering keys, which writers of the outbox must not be able to foresee.

package event

import (
	"encoding/binary"
	"hash/fnv"
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
	h = foldBytes(h, aggregate)
	return fold(foldBytes(h, key), mul3)
}

// HashPosition digests a position, for an event without an ordering key.
func HashPosition(p Position) uint64 {
	return fold(fold(uint64(p.Commit)^mul1, mul2)^uint64(p.Index), mul3)
}

// HashName digests a name together with the digest of what it belongs to; within 0: it belongs to
// nothing.
func HashName(within uint64, name []byte) uint64 {
	return fold(foldBytes(fold(within^mul2, mul1), name), mul3)
}

func foldBytes(h uint64, b []byte) uint64 {
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

// fold joins the halves of the 128-bit product: each bit of the result depends on all bits of a and
// b.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Digest is the 64-bit FNV-1a hash of b. The retry table indexes it where the value itself may be
// too long for an index entry, so it must be the same in every version. Values with the same digest
// are compared in full. nil has no digest: it is NULL.
func Digest(b []byte) *int64 {
	if b == nil {
		return nil
	}
	h := fnv.New64a()
	h.Write(b) // a hash does not fail
	d := int64(h.Sum64())
	return &d
}

// KeyHash digests ordering keys under a secret of the slot (SipHash-2-4). Keys with the same digest
// are one ordering group. A writer who could find a key with the digest of another aggregate's key
// would hold that one up, with an event that is refused. HashKey has no secret, and such keys can
// be computed.
type KeyHash struct{ k0, k1 uint64 }

// NewKeyHash makes one of a secret.
func NewKeyHash(secret [16]byte) *KeyHash {
	return &KeyHash{binary.LittleEndian.Uint64(secret[:]), binary.LittleEndian.Uint64(secret[8:])}
}

// Of digests a key; of nil it is HashKey. Both lengths go in, so aggregate and key are two fields.
func (h *KeyHash) Of(aggregate, key []byte) uint64 {
	if h == nil {
		return HashKey(aggregate, key)
	}
	return h.newSip().word(uint64(len(aggregate))).bytes(aggregate).bytes(key).sum(uint64(len(key)))
}

// sip is the state of SipHash: a value, which stays in registers.
type sip struct{ v0, v1, v2, v3 uint64 }

func (h *KeyHash) newSip() sip {
	return sip{h.k0 ^ 0x736f6d6570736575, h.k1 ^ 0x646f72616e646f6d, h.k0 ^ 0x6c7967656e657261, h.k1 ^ 0x7465646279746573}
}

func (s sip) round() sip {
	s.v0 += s.v1
	s.v2 += s.v3
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 = bits.RotateLeft64(s.v0, 32) + s.v3
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 = bits.RotateLeft64(s.v2, 32)
	return s
}

func (s sip) word(m uint64) sip {
	s.v3 ^= m
	s = s.round().round()
	s.v0 ^= m
	return s
}

// bytes takes the words of b, the last one with zeros.
func (s sip) bytes(b []byte) sip {
	for ; len(b) >= 8; b = b[8:] {
		s = s.word(binary.LittleEndian.Uint64(b))
	}
	if len(b) == 0 {
		return s
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	return s.word(tail)
}

// sum takes the last word.
func (s sip) sum(last uint64) uint64 {
	s = s.word(last)
	s.v2 ^= 0xff
	s = s.round().round().round().round()
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}
