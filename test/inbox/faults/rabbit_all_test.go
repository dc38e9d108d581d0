//go:build testall

// RabbitMQ, as the matrix needs it.

package faults

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

const exchange = "outbox.events"

// rabbitBroker is a broker, and the proxies of the points that have one.
type rabbitBroker struct {
	*rabbitserver.Rabbit
	ways map[string]*netproxy.Proxy
}

func newRabbit(t *testing.T) *rabbitBroker {
	t.Helper()
	server, err := rabbitserver.Start(t.Context(), rabbitserver.Options{})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, server.Close()) })
	b := &rabbitBroker{server, map[string]*netproxy.Proxy{}}
	for _, point := range []string{retrying, dying} {
		b.ways[point], err = netproxy.Start(server.Addr())
		await.Must(t, err)
		t.Cleanup(b.ways[point].Close)
	}
	return b
}

func (b *rabbitBroker) job(j job) job {
	j.RabbitMQ = b.URL()
	if way := b.ways[j.Point]; way != nil {
		j.RabbitMQ = strings.Replace(b.URL(), b.Addr(), way.Addr(), 1)
	}
	return j
}

func (b *rabbitBroker) prepare(t *testing.T, service string, in *inbox.Inbox) {
	t.Helper()
	c, err := rabbit.New(in, rabbit.Config{URL: b.URL(), Bindings: bindings(service)})
	await.Must(t, err)
	await.Must(t, c.Declare(t.Context()))
}

func (b *rabbitBroker) publish(t *testing.T, service string, messages []message) {
	t.Helper()
	b.onChannel(t, func(ch *amqp.Channel) {
		await.Must(t, ch.Confirm(false))
		for _, m := range messages {
			confirm, err := ch.PublishWithDeferredConfirm(exchange, service+"."+m.kind, false, false, amqp.Publishing{
				MessageId: m.id, Type: m.kind, DeliveryMode: amqp.Persistent, Body: []byte(`{}`),
				Headers: amqp.Table{"aggregate_type": service, "aggregate_id": m.key},
			})
			await.Must(t, err)
			if !confirm.Wait() {
				t.Fatalf("publish %v: not confirmed", m)
			}
		}
	})
}

func (b *rabbitBroker) delivered(t *testing.T, service string) {
	t.Helper()
	await.Until(t, "all messages to be delivered", func() bool { return b.ready(t, service) == 0 })
}

func (b *rabbitBroker) hold(point string) { b.ways[point].Hold(netproxy.Down) }

// published: nothing is delivered any more, so what is kept back is the confirm. Heartbeats are
// shorter, and come every few seconds.
func (b *rabbitBroker) published(t *testing.T, _, point string) {
	t.Helper()
	const confirm = 21 // bytes of the frame of a basic.ack
	await.Must(t, b.ways[point].WaitHeld(t.Context(), netproxy.Down, confirm))
}

func (b *rabbitBroker) release(point string) { b.ways[point].Release(netproxy.Down) }

func (b *rabbitBroker) restart(t *testing.T) {
	t.Helper()
	await.Must(t, b.Kill())
	for _, way := range b.ways {
		way.Reset()
	}
	await.Must(t, b.Start(t.Context()))
}

func (b *rabbitBroker) kept(t *testing.T, service string, n int) {
	t.Helper()
	count := func() int { return b.ready(t, service) + b.ready(t, service+".retry.1s") }
	await.Until(t, fmt.Sprintf("the queues of %s to have %d messages that were not acknowledged", service, n), func() bool { return count() >= n },
		func() any { return count() })
}

func (b *rabbitBroker) left(t *testing.T, service string) string {
	for _, queue := range []string{service, service + ".retry.1s"} {
		if n := b.ready(t, queue); n > 0 {
			return fmt.Sprintf("%d messages are in the queue %s", n, queue)
		}
	}
	return ""
}

func (b *rabbitBroker) dead(t *testing.T, service string) (ids []string) {
	b.onChannel(t, func(ch *amqp.Channel) {
		for {
			got, ok, err := ch.Get(service+".dlq", false)
			await.Must(t, err)
			if !ok {
				return
			}
			ids = append(ids, got.MessageId)
		}
	})
	return ids
}

// ready is how many messages of a queue wait and are not delivered.
func (b *rabbitBroker) ready(t *testing.T, queue string) (n int) {
	t.Helper()
	b.onChannel(t, func(ch *amqp.Channel) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		await.Must(t, err)
		n = q.Messages
	})
	return n
}

func (b *rabbitBroker) onChannel(t *testing.T, do func(*amqp.Channel)) {
	t.Helper()
	conn, err := amqp.Dial(b.URL())
	await.Must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	await.Must(t, err)
	do(ch)
}
