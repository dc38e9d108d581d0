// Which partition a record belongs to: the one that Java's producer chooses for the same key.

package kafka

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// partitionOf is the partition of an event among count > 0 of them. A key that is neither NULL nor empty goes where the
// default partitioner of Kafka's own producer puts its bytes. Any other event has no order to keep and is spread by the
// digest of its position, so that it goes to the same partition at every delivery while count stays.
func partitionOf(ev *outbox.Event, count int32) int32 {
	if len(ev.Key) > 0 {
		return int32(murmur2(ev.Key)&0x7fffffff) % count
	}
	return int32(ev.Hash % uint64(count))
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2: MurmurHash2 of 32 bits with Kafka's seed.
func murmur2(key []byte) uint32 {
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
