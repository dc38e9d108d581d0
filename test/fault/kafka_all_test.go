//go:build testall

package fault

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The broker appends, and its answer comes after the relay has given the request up. The same bytes
// go again, and the broker knows them.
func TestKafkaAnswersAfterTheTimeout(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedKafka(t))
	s.Delivery = "confirm_timeout: 1s"
	s.WatchFlush()
	r := s.Start()
	stop := s.Load(300)
	pending := func() int { return status(s, r).Broker.PendingConfirms }
	for range 2 {
		s.More(100)
		s.Broker.Hold(netproxy.Down)
		s.Until("a request without an answer", func() bool { return pending() > 0 })
		s.Until("it to be given up", func() bool { return pending() == 0 })
		s.Broker.Release(netproxy.Down)
	}
	s.More(100)
	stop()
	s.Check(0)
}

// A topic is deleted and re-created while events are on their way to it. What had arrived was read
// before; the rest goes to the new one, each key in order, whatever number of partitions that has.
func TestKafkaTopicMadeAgain(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"WithAsManyPartitions": 3, "WithFewer": 1, "WithMore": 7} {
		t.Run(name, func(t *testing.T) {
			stand.Parallel(t)
			s := stand.New(t, stand.SharedKafka(t))
			topic, cluster := s.Kafka.Topic("order"), s.Kafka.Cluster
			s.WatchFlush()
			r := s.Start()
			s.Write(100)
			s.Arrived()
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
