// The state of one Publish call, and the inbox of answered batches.

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
	sink.Call
	todo     []int       // events that are not in a part, in order
	parts    []*producer // those with a part in this call
	began    time.Time
	since    int64            // the version of the metadata at its beginning
	metadata *client.Metadata // the metadata it last used
	posted   []*client.Broker // brokers with new batches in their queue, not yet signalled
}

// topicName places an event in l.placed and returns the name of its topic, valid until the next
// call of topicName.
func (l *lane) topicName(ev *event.Event) ([]byte, *sink.Fault) {
	return l.sink.layout.Place(ev, &l.placed)
}

// topicOf digests the topic of an event.
func (l *lane) topicOf(ev *event.Event) uint64 {
	name, _ := l.topicName(ev)
	return sink.ExchangeOrTopicOf(name)
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
