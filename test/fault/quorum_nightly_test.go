//go:build nightly

package fault

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A quorum queue under load while the broker is short of memory, the relay is killed, and the
// broker is stopped in order and started again.
func TestQuorumQueueThroughFaults(t *testing.T) {
	stand.Parallel(t)
	rmq, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, rmq.Close()) })
	s := stand.New(t, stand.OnRabbitMQReading(rmq, consumers.ConsumerOptions{Quorum: true, Prefetch: prefetch}))
	s.Delivery = fmt.Sprintf("max_in_flight: %d", budget)
	r := s.StartWatched()
	stop := s.Load(100)
	s.More(50)

	s.Must(rmq.Alarm(s.Context(), true))
	s.Unready(r, "blocked by the broker")
	s.Must(rmq.Alarm(s.Context(), false))
	s.More(50)

	s.Must(r.Kill())
	unreported := s.Unreported()
	s.Start()
	s.More(50)

	s.Must(rmq.Stop(s.Context()))
	s.Must(rmq.Start(s.Context()))
	s.More(50)
	stop()
	s.CheckHistory(checker.History{MaxDuplicates: unreported + budget + prefetch, BrokerKilled: true})
}
