package cli

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

const stringConverters = `key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.storage.StringConverter`

// compatKafka is a rig that publishes as Debezium in Kafka Connect does.
func compatKafka(t *testing.T, partitions int, options string) *topical {
	t.Helper()
	k := withKafka(t, partitions)
	k.options(options)
	return k
}

func (k *topical) options(options string) {
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s']}\n  compat: {profile: debezium-connect, options: {route.topic.replacement: '%s', %s}}",
		k.kafka.Brokers()[0], k.topic, options)
}

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

// null stands for a null header, which is not an empty one.
const null = "\x00null"

func orNull(b []byte) string {
	if b == nil {
		return null
	}
	return string(b)
}

func shown(r *kafkaserver.Record) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n", orNull(r.Key), orNull(r.Value))
	for _, h := range r.Headers {
		fmt.Fprintf(&out, "%s: %s\n", h.Name, orNull(h.Value))
	}
	return out.String()
}

// What a record in Debezium's form has, and nothing else.
func TestCompatRecord(t *testing.T) {
	t.Parallel()
	k := compatKafka(t, 12, stringConverters+`, table.field.event.timestamp: happened, table.fields.additional.placement: 'type:header:eventType,region:header'`)
	k.exec(`ALTER TABLE outbox ADD COLUMN happened timestamp, ADD COLUMN region text`)
	k.start()
	k.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent, happened)
		VALUES ('11111111-1111-1111-1111-111111111111', 'order', '10711fa5', 'created', '{"total": 12.50}', '{"tenant": "a"}', '00-trace', '2026-01-02 03:04:05.678999')`)
	r := k.records(k.topic, 1)[0]
	const want = "10711fa5\n{\"total\": 12.50}\nid: 11111111-1111-1111-1111-111111111111\neventType: created\nregion: NULL\n"
	if got := shown(&r); strings.ReplaceAll(got, null, "NULL") != want || r.Partition != 11 || r.Time.UnixMilli() != 1767323045678 {
		t.Errorf("the record is %+v, want %q on partition 11", r, want)
	}
}

// What a message in Debezium Server's form has, and nothing else.
func TestCompatMessage(t *testing.T) {
	t.Parallel()
	b, take := compatBroker(t, "format.value: simplestring, format.header.schemas.enable: false")
	relay := b.start()
	b.exec(`INSERT INTO outbox VALUES ('11111111-1111-1111-1111-111111111111', 'order', '7', 'created', '{"total": 12.50}')`)
	d := delivery(t, take)
	if d.Exchange != "outbox.events" || d.RoutingKey != "outbox.event.order" || string(d.Body) != `{"total": 12.50}` || len(d.Headers) != 1 ||
		d.Headers["id"] != `"11111111-1111-1111-1111-111111111111"` || d.DeliveryMode != amqp.Persistent || d.MessageId+d.ContentType+d.Type != "" || !d.Timestamp.IsZero() {
		t.Errorf("the message is %+v", d)
	}
	if out := b.ok("check"); strings.Contains(out, "fail") {
		t.Errorf("check says\n%s", out)
	}
	relay.Stop(t)
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
