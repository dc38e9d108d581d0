package cli

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// brokered is a rig whose events go to a virtual host of the shared broker, where a consumer takes
// them.
type brokered struct {
	*rig
	broker   *rabbitserver.Rabbit
	vhost    string
	consumer *consumers.Consumer
}

func withBroker(t *testing.T) *brokered {
	t.Helper()
	b := &brokered{rig: newRig(t), broker: servers.SharedRabbitMQ(t)}
	b.vhost = b.broker.VHost(t)
	var err error
	b.consumer, err = consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: b.vhost})
	must(t, err)
	t.Cleanup(b.consumer.Close)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "'}"
	return b
}

// A broker that does not answer is waited for; what is committed meanwhile arrives when it comes.
func TestWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	p := proxy(t, b.broker.Addr())
	p.Cut()
	b.sink = "  rabbitmq: {url: '" + through(b.vhost, p.Addr()) + "'}"
	relay := runner.Start(t, b.binary, b.yaml())
	state(t, relay, "broker down", "connection refused")
	b.insert(2)
	says(t, relay, "/healthz", 200)
	says(t, relay, "/readyz", 503, "broker down", "connection refused")
	says(t, relay, "/metrics", 200, "\ncdc_relay_sink_up 0\n", "\ncdc_relay_backlog_events 2\n")
	must(t, p.Restore())
	must(t, b.consumer.WaitCount(await.Context(t), 2))
	must(t, relay.WaitReady(await.Context(t)))
	if n := strings.Count(relay.Log(), "broker unavailable"); n != 1 {
		t.Errorf("%d lines about the broker, want 1: %s", n, relay.Log())
	}
	ended(t, relay)
}

func (b *brokered) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.vhost)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}

// bodies waits until a queue has n messages, and reads all it has without taking them away.
func (b *brokered) bodies(ch *amqp.Channel, queue string, n int) (all []string) {
	b.t.Helper()
	var last uint64
	eventually(b.t, func() string {
		all = nil
		for {
			d, more, err := ch.Get(queue, false)
			must(b.t, err)
			if !more {
				break
			}
			all, last = append(all, string(d.Body)), d.DeliveryTag
		}
		if len(all) > 0 {
			must(b.t, ch.Nack(last, true, true))
		}
		if len(all) != n {
			return fmt.Sprintf("queue %s has %q, want %d messages", queue, all, n)
		}
		return ""
	})
	return all
}
