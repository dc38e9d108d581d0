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

const budget, prefetch = 60, 40

// A RabbitMQ that is killed may forget which messages were taken; a quorum queue writes it down,
// and gives again at most what it had given out and not seen acknowledged, which may come behind
// later ones (BrokerKilled).
func TestBrokerKilledUnderLoad(t *testing.T) {
	stand.Parallel(t)
	rmq, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, rmq.Close()) })
	server := stand.OnRabbitMQReading(rmq, consumers.ConsumerOptions{Quorum: true, Prefetch: prefetch})
	killedUnderLoad(t, server, budget+prefetch, "key", "commit", "none", "pipelined")
}

// A broker goes and comes back under load, at a relay for each ordering: what arrives twice was in
// the in-flight budget when it went, or the broker has forgotten that it was taken. More than that
// has arrived before, so a relay that began again would be seen.
func killedUnderLoad(t *testing.T, server stand.Server, bound int, orderings ...string) {
	t.Helper()
	var stands []*stand.Stand
	var stops []func()
	for _, ordering := range orderings {
		s := stand.New(t, server)
		// confirm_timeout is the usual one: each time that a broker which comes back slowly is
		// given up, the budget comes again
		s.Ordering, s.Delivery = ordering, fmt.Sprintf("max_in_flight: %d", budget)
		s.StartWatched()
		stops = append(stops, s.Load(100))
		stands = append(stands, s)
	}
	for _, s := range stands {
		s.Must(s.Consumer.WaitCount(s.Context(), 2*(budget+prefetch)))
	}
	await.Must(t, server.Kill())
	await.Must(t, server.Start(t.Context()))
	for _, s := range stands {
		s.More(50)
	}
	for _, stop := range stops {
		stop()
	}
	for _, s := range stands {
		t.Log(s.Ordering)
		s.CheckHistory(checker.History{MaxDuplicates: s.Repeats(bound), BrokerKilled: true})
	}
}
