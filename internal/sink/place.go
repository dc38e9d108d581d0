// The digests of exchanges, topics and destinations.

package sink

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// ExchangeOrTopicOf digests the name of an exchange or topic; never 0, which means no name. The
// retry table stores these digests, so they must never change.
func ExchangeOrTopicOf(name []byte) uint64 { return max(1, event.HashName(0, name)) }

// DestOfPair digests the pair of an exchange, by its ExchangeOrTopicOf, and a routing key.
func DestOfPair(exchangeOrTopic uint64, routingKey []byte) uint64 {
	return max(1, event.HashName(exchangeOrTopic, routingKey))
}

// DestOfPartition digests a partition of the topic whose ExchangeOrTopicOf is exchangeOrTopic.
func DestOfPartition(exchangeOrTopic uint64, partition int32) uint64 {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(partition))
	return max(1, event.HashName(exchangeOrTopic, number[:]))
}
