// Which partition an event's record goes to.

package record

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
)

// Partition returns the partition of an event that was placed in rec, among count > 0. If the row
// itself names a partition that does not exist, the result is count or more. A key goes where the
// default partitioner of Kafka's own producer puts its bytes. An event without one has no order to
// keep and is spread by the digest of its position, so that it goes to the same partition at every
// delivery while count stays.
func Partition(ev *event.Event, rec *sink.Record, count int32) int32 {
	switch {
	case rec.Partition >= 0:
		return rec.Partition
	case rec.Partition == sink.Anywhere || rec.Key == nil:
		return int32(ev.Hash % uint64(count))
	}
	return batch.Partition(rec.Key, count)
}

// PartitionOf is the partition of an event among count > 0 of them by the key in its row.
func PartitionOf(ev *event.Event, count int32) int32 {
	if len(ev.Key) > 0 {
		return batch.Partition(ev.Key, count)
	}
	return int32(ev.Hash % uint64(count))
}

// NoPartition is the fault of an event that names a partition which its topic does not have. It
// does not say which: that is a column's value.
func NoPartition(topic string, count int) *sink.Fault {
	return sink.PermanentFault(sink.Invalid, fmt.Sprintf("it names a partition beyond the %d that topic %q has", count, topic))
}
