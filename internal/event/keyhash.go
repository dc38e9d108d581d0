// The digest of ordering keys, which writers of the outbox must not be able to foresee.

package event

import (
	"encoding/binary"
	"math/bits"
)

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
	return h.begin().word(uint64(len(aggregate))).bytes(aggregate).bytes(key).sum(uint64(len(key)))
}

// sip is the state of SipHash: a value, which stays in registers.
type sip struct{ v0, v1, v2, v3 uint64 }

func (h *KeyHash) begin() sip {
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
