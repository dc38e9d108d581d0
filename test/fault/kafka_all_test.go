//go:build testall

package fault

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A topic is deleted and re-created while events are on their way to it. What had arrived was read
// before; the rest goes to the new one, each key in order, whatever number of partitions that has.
func TestKafkaTopicMadeAgain(t *testing.T) {
	stand.Parallel(t)
	const partitions = 1 // fewer than before
	s := stand.New(t, stand.SharedKafka(t))
	topic, cluster := s.Kafka.Topic("order"), s.Kafka.Cluster
	r := s.StartWatched()
	s.Deliver(100)
	s.Must(s.Consumer.Drain(s.Context()))
	s.Broker.Hold(netproxy.Up) // nothing more gets there unread
	stop := s.Load(300)
	s.Must(s.Broker.WaitHeld(s.Context(), netproxy.Up, 200))
	s.Must(cluster.DeleteTopic(s.Context(), topic))
	s.Broker.Release(netproxy.Up)
	paused := pausedFor(s, r, "no_topic")
	if !strings.Contains(paused.Destination, topic) {
		t.Errorf("paused is %+v, want topic %s", paused, topic)
	}
	s.AwaitRows(checker.Deferred, 100)
	if code, body := s.Readyz(r); code != 200 || !strings.Contains(body, topic) {
		t.Errorf("/readyz is %d: %s", code, body)
	}
	s.Must(cluster.CreateTopic(s.Context(), topic, partitions, 1, nil))
	s.More(300)
	stop()
	s.Check(0)
	fixed(s, r)
	s.Ready(r)
}

// Partitions are added while events flow: a key goes to the partition that Java's producer would
// choose, by a count that only rises, so it leaves a partition for good and never goes back. Within
// a partition the checker sees its order. (Across partitions the order in which a consumer sees
// records means nothing.)
func TestKafkaPartitionsAdded(t *testing.T) {
	stand.Parallel(t)
	counts := []int{3, 5, 8, 13}
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Partitions: counts[0]}))
	topic, cluster := s.Kafka.Topic("order"), s.Kafka.Cluster
	r := s.StartWatched()
	stop := s.Load(400)
	s.More(100)
	for _, count := range counts[1:] {
		s.Must(cluster.AddPartitions(s.Context(), topic, count))
		s.More(30)
		// whoever loses a connection asks for the partitions
		lose(s, s.Broker, netproxy.Down, 1, s.Broker.Reset)
		s.Until("the new partitions to be used", func() bool {
			ends := s.Kafka.Ends("order")
			return ends[count-1] > 0 || ends[count-2] > 0
		})
		s.More(50)
	}
	s.Leads(s.Ready(r))
	stop()
	s.Check(0)
	s.WentBy(counts...)
}
