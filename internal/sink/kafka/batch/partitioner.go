// Which partition a record belongs to: the one that Java's producer chooses for the same key.

package batch

import (
	"encoding/binary"
)

// Partition is the partition of a key among count > 0 of them.
func Partition(key []byte, count int32) int32 { return int32(Murmur2(key)&0x7fffffff) % count }

// Murmur2 is org.apache.kafka.common.utils.Utils.murmur2: MurmurHash2 of 32 bits with Kafka's seed.
func Murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		mul  = 0x5bd1e995
	)
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * mul
		k ^= k >> 24
		h = h*mul ^ k*mul
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * mul
	}
	h = (h ^ h>>13) * mul
	return h ^ h>>15
}
