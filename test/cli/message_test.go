package cli

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queue is a virtual host with a queue behind outbox.events, whose messages are taken one by one.
func (b *brokered) queue(t *testing.T) func() *amqp.Delivery {
	t.Helper()
	b.consumer.Close()
	conn, err := amqp.Dial(b.vhost)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return func() *amqp.Delivery {
		d, ok, err := ch.Get("orders", true)
		must(t, err)
		if !ok {
			return nil
		}
		return &d
	}
}
