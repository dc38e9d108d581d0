//go:build nightly

// Partitions that are added while nothing fails.

package long

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// Partitions are added to a topic while nothing goes wrong with it, and nothing is sent: so nothing
// makes the relay ask. It asks by itself every 30 s, and from then on the new partitions are used,
// without a restart. Keys move once.
func TestKafkaPartitionsAddedInPeace(t *testing.T) {
	stand.Parallel(t)
	const before, after = 3, 8
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{Partitions: before}))
	r := s.StartWatched()
	s.Deliver(100)
	s.Must(s.Kafka.Cluster.AddPartitions(s.Context(), s.Kafka.Topic("order"), after))
	s.Broker.Hold(netproxy.Up) // an idle relay sends a broker nothing but this question
	s.Must(s.Broker.WaitHeld(s.Context(), netproxy.Up, 1))
	s.Broker.Release(netproxy.Up)
	arrived, _ := s.Consumer.Count()
	stop := s.Load(200)
	s.Until("records in the new partitions", func() bool {
		return slices.ContainsFunc(s.Consumer.DeliveriesFrom(arrived), func(d checker.Delivery) bool { return d.From.Partition >= before })
	})
	s.More(100)
	s.Leads(s.Ready(r))
	stop()
	s.Check(0)
	if s.WentBy(before, after) == 0 {
		t.Error("no key has moved")
	}
}
