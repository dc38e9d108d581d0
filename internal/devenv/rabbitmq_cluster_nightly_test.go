//go:build nightly

package devenv

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A quorum queue of two brokers confirms nothing while one is away, and all of it when that is back; another queue of the
// same broker does not mind.
func TestRabbitClusterWithoutMajority(t *testing.T) {
	ctx := await.Context(t)
	c, err := StartRabbitCluster(ctx, 2, RabbitOptions{})
	await.Must(t, err)
	defer func() { await.Must(t, c.Close()) }()
	vhost := c.Nodes[0].VHost(t)
	conn, err := amqp.Dial(vhost)
	await.Must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	await.Must(t, err)
	for name, args := range map[string]amqp.Table{"quorum": {"x-queue-type": "quorum"}, "classic": nil} {
		_, err = ch.QueueDeclare(name, true, false, false, false, args)
		await.Must(t, err)
	}
	await.Must(t, ch.Confirm(false))
	publish := func(queue string) *amqp.DeferredConfirmation {
		t.Helper()
		d, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
		await.Must(t, err)
		return d
	}
	confirmed := func(d *amqp.DeferredConfirmation) {
		t.Helper()
		if ok, err := d.WaitContext(ctx); !ok || err != nil {
			t.Fatalf("confirmed: %t, %v", ok, err)
		}
	}
	confirmed(publish("quorum"))
	await.Must(t, c.Nodes[1].Kill())
	late := publish("quorum")
	for range 100 {
		confirmed(publish("classic"))
	}
	if late.Acked() {
		t.Error("a queue without a majority has confirmed")
	}
	await.Must(t, c.Nodes[1].Start(ctx))
	confirmed(late)
}

// The right to write is taken from one exchange, and not from the others.
func TestRightToWriteTakenAway(t *testing.T) {
	ctx := await.Context(t)
	r := SharedRabbitMQ(t)
	vhost := r.VHost(t)
	publish := func(exchange string) error {
		t.Helper()
		conn, err := amqp.Dial(vhost)
		await.Must(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		await.Must(t, err)
		await.Must(t, ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil))
		await.Must(t, ch.Confirm(false))
		d, err := ch.PublishWithDeferredConfirm(exchange, "k", false, false, amqp.Publishing{})
		await.Must(t, err)
		if ok, err := d.WaitContext(ctx); ok || err != nil {
			return err
		}
		return errors.New("the channel was closed over it")
	}
	await.Must(t, publish("one"))
	await.Must(t, r.AllowWrite(ctx, vhost, "^(amq.default|two)$"))
	if err := publish("one"); err == nil {
		t.Error("it may still write")
	}
	await.Must(t, publish("two"))
	await.Must(t, r.AllowWrite(ctx, vhost, ".*"))
	await.Must(t, publish("one"))
}
