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

// What a message says of itself: what the configuration names of the row is in its place.
func TestMessage(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.exec(`ALTER TABLE outbox ADD COLUMN region text, ADD COLUMN prio int`)
	b.more = "outbox: {timestamp: created_at, headers: {region: region}}\n"
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', properties: {priority: prio}}"
	take := b.queue(t)
	relay := b.start()
	b.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent, created_at, region, prio)
		VALUES ('11111111-1111-1111-1111-111111111111', 'order', '7', 'created', '{"total": 12.50}',
			'{"tenant": "a", "n": 3, "x-retry-count": 4, "aggregate_id": "forged"}', '00-trace', '2026-01-02 03:04:05.678+00', 'eu', 5)`)
	d := next(t, take)
	if d.Exchange != "outbox.events" || d.RoutingKey != "order.created" || d.MessageId != "11111111-1111-1111-1111-111111111111" || d.Type != "created" ||
		d.ContentType != "application/json" || d.DeliveryMode != amqp.Persistent || d.Timestamp.Unix() != 1767323045 || d.Priority != 5 ||
		string(d.Body) != `{"total": 12.50}` {
		t.Errorf("the message is %+v", d)
	}
	position := header(d, "cdc_position")
	for name, want := range map[string]any{
		"aggregate_type": "order", "aggregate_id": "7", "timestamp_in_ms": int64(1767323045678), "traceparent": "00-trace",
		"tenant": "a", "n": int64(3), "region": "eu",
	} {
		if d.Headers[name] != want {
			t.Errorf("header %s is %v, want %v", name, d.Headers[name], want)
		}
	}
	if len(d.Headers) != 8 || len(position) != 25 || position[16] != '-' {
		t.Errorf("the headers are %v", d.Headers)
	}
	relay.Stop(t)
}
