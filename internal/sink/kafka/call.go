// The state of one Publish call: what waits behind a rejection, and the inbox of answered batches.

package kafka

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
)

// call is the state of the present publish call.
type call struct {
	events   []*event.Event
	outcomes []sink.Outcome
	todo     []int32     // events that are not in a part, in order
	parts    []*producer // those with a part in this call
	began    time.Time
	since    int64            // the version of the metadata at its beginning
	metadata *client.Metadata // the metadata it last used
	posted   []*client.Broker // brokers with new batches in their queue, not yet signalled
	// the first rejected event of each ordering group that has one; those behind it are not sent
	firstRejected map[uint64]int32
	stats         stats
}

// stats counts a call's answers for Config.Confirms.
type stats struct{ acks, nacks, timeouts int }

// topicName places an event in l.placed and returns the name of its topic, valid until the next
// call of topicName.
func (l *lane) topicName(i int32) ([]byte, *sink.Fault) {
	return l.sink.layout.Place(l.events[i], &l.placed)
}

// group is the digest of the ordering group that a rejection stops: the key in this topic. The
// key's events for another topic go on: if they stopped, events of other keys would overtake them
// there with ordering commit.
func (l *lane) group(i int32) uint64 {
	name, _ := l.topicName(i)
	group, _ := event.PerKey.Group(l.events[i], sink.ExchangeOrTopicOf(name))
	return group
}

// reject rejects an event. Later events of its key and topic stay Unsent in this call.
func (l *lane) reject(i int32, fault *sink.Fault) {
	if l.outcomes[i].State != sink.Unsent {
		return
	}
	l.outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: fault}
	if ev := l.events[i]; ev.Ordered {
		if first, ok := l.firstRejected[l.group(i)]; !ok || i < first {
			l.firstRejected[l.group(i)] = i
		}
	}
}

// isBehindRejected reports whether an earlier event of the same key and topic was rejected in this
// call.
func (l *lane) isBehindRejected(i int32) bool {
	if len(l.firstRejected) == 0 {
		return false
	}
	first, rejected := l.firstRejected[l.group(i)]
	return rejected && first < i && l.events[i].Ordered
}

// inbox holds the producers that the client has given back to a lane.
type inbox struct {
	mu        sync.Mutex
	producers []*producer
	taken     []*producer   // by the last take, and to be used again
	filled    chan struct{} // cap 1
}

// deliver gives a producer back to its lane, with its answer.
func (in *inbox) deliver(pr *producer) {
	in.mu.Lock()
	in.producers = append(in.producers, pr)
	in.mu.Unlock()
	conn.Notify(in.filled)
}

// take returns the producers that came back, valid until the next take.
func (in *inbox) take() []*producer {
	in.mu.Lock()
	defer in.mu.Unlock()
	clear(in.taken)
	in.producers, in.taken = in.taken[:0], in.producers
	return in.taken
}
