// The messages that members of a consumer group send each other through the brokers: the topics
// that each reads, and the partitions that each gets. Brokers pass these bytes on and do not read
// them, so all clients of a group must write the same format (ConsumerProtocol, version 0).

package kafkaclient

import (
	"encoding/binary"
	"maps"
	"slices"
)

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func appendInt32(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

// EncodeSubscription encodes the topics that a member reads. A member sends it when it joins.
func EncodeSubscription(topics []string) []byte {
	b := appendInt32([]byte{0, 0}, len(topics)) // the version
	for _, topic := range topics {
		b = appendText(b, topic)
	}
	return appendInt32(b, None) // no user data
}

// ReadSubscription decodes the topics that another member reads. The leader of the group calls it.
func ReadSubscription(body []byte) ([]string, error) {
	b := &bytesLeft{rest: body}
	b.int16()
	topics := make([]string, b.count(2))
	for i := range topics {
		b.text(&topics[i])
	}
	return topics, b.err
}

// EncodeAssignment encodes the partitions that a member gets, by topic. The leader of the group
// sends it.
func EncodeAssignment(partitions map[string][]int) []byte {
	b := appendInt32([]byte{0, 0}, len(partitions))
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		b = appendInt32(appendText(b, topic), len(partitions[topic]))
		for _, id := range partitions[topic] {
			b = appendInt32(b, id)
		}
	}
	return appendInt32(b, None)
}

// ReadAssignment decodes the partitions that the leader gave this member, by topic. It may be none.
func ReadAssignment(body []byte) (map[string][]int, error) {
	if len(body) == 0 {
		return nil, nil
	}
	b := &bytesLeft{rest: body}
	b.int16()
	partitions := map[string][]int{}
	for range b.count(2 + 4) {
		var topic string
		b.text(&topic)
		for range b.count(4) {
			partitions[topic] = append(partitions[topic], int(b.int32()))
		}
	}
	return partitions, b.err
}
