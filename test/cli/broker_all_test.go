//go:build testall

package cli

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
)

// declare: true makes the exchange; what no queue takes is still deferred, and the routing key
// named.
func TestDeclaredExchange(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: made, declare: true}"
	relay := b.start()
	b.insert(1)
	s := deferred(t, relay, 1)
	if p := s.Broker.Paused[0]; p.Reason != "unroutable" || p.Destination != `exchange "made", routing key "order.created"` {
		t.Errorf("paused is %+v", p)
	}
	consumer, err := consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: b.vhost, Exchange: "made", Queue: "made"})
	must(t, err)
	t.Cleanup(consumer.Close)
	must(t, consumer.WaitCount(await.Context(t), 1))
	relay.Stop(t)
}
