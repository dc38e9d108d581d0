// Which partition an event's record goes to.

package record

import (
	"fmt"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
)

// Partition returns the partition of an event's record among count > 0. If the row itself names a
// partition that does not exist, the result is count or more.
func (l *Layout) Partition(ev *event.Event, count int32) int32 {
	if !l.profiled(ev) {
		return PartitionOf(ev, count)
	}
	rec := records.Get().(*debezium.Record)
	defer records.Put(rec)
	if err := l.router.Placed(ev, rec); err != nil {
		return PartitionOf(ev, count) // it is refused when it is built
	}
	switch {
	case rec.Partition >= 0:
		return rec.Partition
	case rec.Key == nil:
		return int32(ev.Hash % uint64(count))
	}
	return batch.Partition(rec.Key, count)
}

// NamesMissingPartition reports whether the row names a partition that is not among count. Where no
// row can name a partition, it returns false without a check.
func (l *Layout) NamesMissingPartition(ev *event.Event, count int) bool {
	return l.Names && l.profiled(ev) && int(l.Partition(ev, int32(count))) >= count
}

// PartitionOf is the partition of an event among count > 0 of them. A key that is neither NULL nor
// empty goes where the default partitioner of Kafka's own producer puts its bytes. Any other event
// has no order to keep and is spread by the digest of its position, so that it goes to the same
// partition at every delivery while count stays.
func PartitionOf(ev *event.Event, count int32) int32 {
	if len(ev.Key) > 0 {
		return batch.Partition(ev.Key, count)
	}
	return int32(ev.Hash % uint64(count))
}

// records are scratch space to compute where an event goes, for several goroutines.
var records = sync.Pool{New: func() any { return new(debezium.Record) }}

// NoPartition is the fault of an event that names a partition which its topic does not have. It
// does not say which: that is a column's value.
func NoPartition(topic string, count int) *sink.Fault {
	return invalid(fmt.Sprintf("it names a partition beyond the %d that topic %q has", count, topic))
}
