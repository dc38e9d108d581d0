package sink

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// UnitOf digests the name of an exchange or topic; never 0, which stands for no name. The tables of the siding hold these
// digests, so they are the same for ever.
func UnitOf(name []byte) uint64 { return max(1, outbox.HashName(0, name)) }

// DestOfPair digests the pair of an exchange, by its UnitOf, and a routing key.
func DestOfPair(unit uint64, routingKey []byte) uint64 {
	return max(1, outbox.HashName(unit, routingKey))
}

// DestOfPartition digests a partition of the topic whose UnitOf is unit.
func DestOfPartition(unit uint64, partition int32) uint64 {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(partition))
	return max(1, outbox.HashName(unit, number[:]))
}
