//go:build testall

// RabbitMQ, and the SDK's protocol binding for AMQP 1.0: a message is given to it as RabbitMQ gives
// it to consumers of that protocol.

package cloudevents

import (
	"fmt"
	"testing"

	amqp1 "github.com/Azure/go-amqp"
	ceamqp "github.com/cloudevents/sdk-go/protocol/amqp/v2"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

type rabbitQueue struct {
	vhost   string
	channel *amqp.Channel
	taken   *[]message
}

func onRabbitMQ(t *testing.T) broker {
	t.Helper()
	r := rabbitQueue{vhost: servers.SharedRabbitMQ(t).VHost(t), taken: new([]message)}
	conn, err := amqp.Dial(r.vhost)
	await.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	r.channel, err = conn.Channel()
	await.Must(t, err)
	await.Must(t, r.channel.ExchangeDeclare("events", amqp.ExchangeFanout, true, false, false, false, nil))
	_, err = r.channel.QueueDeclare("events", true, false, false, false, nil)
	await.Must(t, err)
	await.Must(t, r.channel.QueueBind("events", "", "events", false, nil))
	return r
}

func (r rabbitQueue) sink(more string) string {
	return fmt.Sprintf("rabbitmq: {url: '%s', exchange: events, routing_key: all%s}", r.vhost, more)
}

func (r rabbitQueue) received(t *testing.T, n int) []message {
	t.Helper()
	await.Until(t, fmt.Sprint(n, " messages"), func() bool {
		for {
			d, more, err := r.channel.Get("events", true)
			if await.Must(t, err); !more {
				return len(*r.taken) >= n
			}
			*r.taken = append(*r.taken, messageOf(&d))
		}
	})
	return (*r.taken)[:n]
}

func messageOf(d *amqp.Delivery) message {
	given := &amqp1.Message{Properties: &amqp1.MessageProperties{ContentType: &d.ContentType}, ApplicationProperties: map[string]any{}, Data: [][]byte{d.Body}}
	headers := map[string]string{}
	for name, value := range d.Headers {
		given.ApplicationProperties[name] = value
		headers[name] = fmt.Sprint(value)
	}
	return message{Message: ceamqp.NewMessage(given, nil), id: d.MessageId, key: headers["aggregate_id"], contentType: d.ContentType, value: d.Body, headers: headers}
}
