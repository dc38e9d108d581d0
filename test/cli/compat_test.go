// What a record in Debezium's form has is compared in test/debezium. Here are commands, and what a
// relay does with one.
package cli

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

const stringConverters = `key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.storage.StringConverter`

// compatBroker is a rig that publishes as Debezium Server does to RabbitMQ.
func compatBroker(t *testing.T, options string) (b *brokered, take func() *amqp.Delivery) {
	t.Helper()
	b = withBroker(t)
	b.options(options)
	return b, b.queue(t)
}

func (b *brokered) options(options string) {
	b.sink = "  rabbitmq: {url: '" + b.vhost + "'}\n  compat: {profile: debezium-server, options: {sink.rabbitmq.exchange: outbox.events, sink.rabbitmq.routingKey.source: topic, " + options + "}}"
}

// delivery waits for a message.
func delivery(t *testing.T, take func() *amqp.Delivery) (d *amqp.Delivery) {
	t.Helper()
	eventually(t, func() string {
		if d = take(); d == nil {
			return "no message"
		}
		return ""
	})
	return d
}

// Without a broker the records can be looked at.
//
// Those of Debezium Server have where its sink for RabbitMQ sends them.
func TestCompatOnStdout(t *testing.T) {
	t.Parallel()
	const row = `"key":"7","value":"{\"a\": \"<é>\"}","headers":[{"name":"id","value":"`
	const id = `11111111-1111-1111-1111-111111111111`
	for _, c := range []struct{ profile, options, want string }{
		{"debezium-connect", stringConverters, `{"topic":"outbox.event.order",` + row + id + `"},{"name":"eventType","value":"created"}],"timestamp":"`},
		{
			"debezium-server", "format.key: simplestring, format.value: simplestring, format.header.schemas.enable: false, sink.rabbitmq.exchange: events, sink.rabbitmq.routingKey.source: topic",
			`{"topic":"outbox.event.order","exchange":"events","routing_key":"outbox.event.order",` + row + `\"` + id + `\""},{"name":"eventType","value":"\"created\""}],"timestamp":"`,
		},
	} {
		t.Run(c.profile, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.sink = "  stdout: {}\n  compat: {profile: " + c.profile + ", options: {" + c.options + ", table.fields.additional.placement: 'type:header:eventType'}}"
			relay := r.start()
			r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('` + id + `', 'order', '7', 'created', '{"a": "<é>"}')`)
			eventually(t, func() string {
				if out := relay.Stdout(); !strings.HasPrefix(out, c.want) || !strings.HasSuffix(out, "\"}\n") {
					return "on stdout is " + out
				}
				return ""
			})
		})
	}
}
