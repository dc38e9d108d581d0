// Records as Debezium makes them.

package kafka

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// profiled reports whether a profile makes the event's record. It does not make the copies of dead letters: those are the relay's
// own messages, and go to a topic that has no other.
func (l *layout) profiled(ev *outbox.Event) bool { return l.router != nil && !ev.Copy }

// routed is the topic that a profile makes.
func (l *layout) routed(ev *outbox.Event, buf []byte) ([]byte, *sink.Fault) {
	name, err := l.router.Topic(ev, buf[:0])
	if err != nil {
		return nil, unrendered(err)
	}
	return name, checkTopic(name)
}

// render makes the record by the profile. Nothing of the relay's own is added.
func (m *message) render(ev *outbox.Event) *sink.Fault {
	rec := &m.record
	if err := m.layout.router.Build(ev, rec); err != nil {
		return unrendered(err)
	}
	m.key, m.value, m.time = rec.Key, rec.Value, rec.Time
	if m.time < 0 {
		return tooEarly
	}
	m.headers, m.count = m.headers[:0], 0
	for i := range rec.Headers {
		m.header(rec.Headers[i].Name, rec.Headers[i].Value)
	}
	return m.fits()
}

// unrendered is the fault of an event that the profile makes no record of. It is the event's own, and for ever: Debezium's task
// would end over it.
func unrendered(err error) *sink.Fault {
	if errors.Is(err, debezium.ErrNoRoute) {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Words: err.Error()}
	}
	return invalid(err.Error())
}

// records are for looks at where an event goes, which several goroutines take.
var records = sync.Pool{New: func() any { return new(debezium.Record) }}

// partition is the partition of an event's record among count > 0. One that the row itself names may not exist: then it is at least
// count.
func (l *layout) partition(ev *outbox.Event, count int32) int32 {
	if !l.profiled(ev) {
		return partitionOf(ev, count)
	}
	rec := records.Get().(*debezium.Record)
	defer records.Put(rec)
	if err := l.router.Placed(ev, rec); err != nil {
		return partitionOf(ev, count) // it is refused when it is built
	}
	switch {
	case rec.Partition >= 0:
		return rec.Partition
	case rec.Key == nil:
		return int32(ev.Hash % uint64(count))
	}
	return int32(murmur2(rec.Key)&0x7fffffff) % count
}

// beyond reports whether the row names a partition that is not among count. Where no row can, nothing is looked at.
func (l *layout) beyond(ev *outbox.Event, count int) bool {
	return l.names && l.profiled(ev) && int(l.partition(ev, int32(count))) >= count
}

// noPartition is the fault of an event that names a partition which its topic does not have. It does not say which: that is a
// column's value.
func noPartition(topic string, count int) *sink.Fault {
	return invalid(fmt.Sprintf("it names a partition beyond the %d that topic %q has", count, topic))
}
