// The beginning of a call: its events are split by partition, as soon as metadata has answered for
// their topics.

package kafka

import (
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// awaitMetadata waits until metadata has answered for every topic of the call. An error must be
// newer than the call, because an older fault may be fixed. So must be the answer for a row that
// names a missing partition: it may have been added since.
func (l *lane) awaitMetadata(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.answered() {
			return nil
		}
		select {
		case <-l.metadata.Stale:
			l.metadata = l.sink.client.Metadata.Load()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answered reports whether metadata is known for every topic, and asks for what is missing.
func (l *lane) answered() bool {
	layout, all, last := l.sink.layout, true, ""
	for _, i := range l.todo {
		name, fault := l.topicName(l.Events[i])
		if fault != nil || string(name) == last && !layout.Names {
			continue
		}
		topic := l.metadata.Topics[string(name)]
		old := topic != nil && topic.Version <= l.since // answered before the call
		if topic == nil || old && (topic.Code != 0 || layout.Names && l.isMissing(i, topic)) {
			all = false
			l.sink.client.Control.RequestMetadata(string(name))
		}
		if topic != nil {
			last = topic.Name
		}
	}
	l.placed.Forget() // the answers may take long
	return all
}

// isMissing reports whether the event that was placed last names a partition that its topic does
// not have.
func (l *lane) isMissing(i int, topic *client.Topic) bool {
	return int(record.Partition(l.Events[i], &l.placed, int32(len(topic.Partitions)))) >= len(topic.Partitions)
}

// split makes parts of the events of todo.
func (l *lane) split() {
	slices.Sort(l.todo) // parts may have given events back
	clear(l.parts)
	l.parts = l.parts[:0]
	var topic *client.Topic
	for _, i := range l.todo {
		if l.Outcomes[i].State != sink.Unsent || l.IsBehindRejected(i) {
			continue
		}
		name, fault := l.topicName(l.Events[i])
		if fault != nil {
			l.Reject(i, fault)
			continue
		}
		if topic == nil || topic.Name != string(name) {
			topic = l.metadata.Topics[string(name)]
		}
		if topic.Code != 0 {
			l.Reject(i, topicFault(l.sink.layout.Shown(topic.Name), topic.Code))
			continue
		}
		partition := record.Partition(l.Events[i], &l.placed, int32(len(topic.Partitions)))
		if int(partition) >= len(topic.Partitions) {
			l.Reject(i, record.NoPartition(l.sink.layout.Shown(topic.Name), len(topic.Partitions)))
			continue
		}
		pr := l.producerFor(topic.Name, partition)
		p := &pr.part
		if len(p.todo) == 0 {
			p.reset()
			l.parts = append(l.parts, pr)
		}
		p.todo = append(p.todo, i)
	}
	l.placed.Forget() // the brokers may take long to answer
	l.todo = l.todo[:0]
	for _, pr := range l.parts {
		pr.part.room = pr.part.todo
		pr.part.phase = ready
	}
}

// producerFor returns the lane's producer for a partition.
func (l *lane) producerFor(topic string, partition int32) *producer {
	r := l.last
	if r == nil || r.topic != topic {
		if r = l.routes[topic]; r == nil {
			r = &route{topic: topic}
			l.routes[topic] = r
			l.sink.client.Control.KeepFresh(topic)
		}
		l.last = r
	}
	for int(partition) >= len(r.producers) {
		r.producers = append(r.producers, nil)
	}
	if r.producers[partition] == nil {
		r.producers[partition] = newProducer(l, topic, partition)
	}
	return r.producers[partition]
}
