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
	t.Parallel()
	for name, partitions := range map[string]int{"WithFewerPartitions": 1, "WithMore": 7} {
		t.Run(name, func(t *testing.T) {
			stand.Parallel(t)
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
			s.Must(cluster.CreateTopic(s.Context(), topic, partitions, 1, nil))
			s.More(300)
			stop()
			s.Check(0)
			fixed(s, r)
			s.Ready(r)
		})
	}
}
