package rabbit

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A stream that is bound to the exchange is read in the order in which its events were sent, as
// often as anybody likes, with all that a message has.
func TestStream(t *testing.T) {
	b := parallelBroker(t)
	b.exchange("events", amqp.Table{"x-queue-type": "stream"})
	s := start(t, b.config())
	sent := events(500, "created")
	for _, ev := range sent {
		ev.Headers = []byte(`{"tenant": "acme", "n": 7, "ok": true}`)
	}
	wantConfirmed(t, s.send(sent[:200]...))
	wantConfirmed(t, s.send(sent[200:]...))
	for range 2 {
		for i, m := range b.readStream("events", len(sent)) {
			ev := sent[i]
			if m.MessageId != string(ev.ID) || string(m.Body) != string(ev.Payload) || m.Type != "created" || m.ContentType != "application/json" ||
				m.RoutingKey != "created" || m.DeliveryMode != amqp.Persistent || m.Timestamp.Unix() != ev.Time.Unix() {
				t.Fatalf("message %d, of event %s: %+v", i, ev.ID, m)
			}
			headers := amqp.Table{
				"aggregate_type": "order", "aggregate_id": string(ev.Key), "timestamp_in_ms": ev.Time.UnixMilli(),
				"cdc_position": ev.Position.String(), "tenant": "acme", "n": int64(7), "ok": true,
			}
			for name, want := range headers {
				if m.Headers[name] != want {
					t.Fatalf("message %d: header %s is %T %v, want %T %v", i, name, m.Headers[name], m.Headers[name], want, want)
				}
			}
		}
	}
}

// readStream reads the first n messages of a stream, which keeps them.
func (b *broker) readStream(queue string, n int) []amqp.Delivery {
	b.t.Helper()
	ch := b.channel()
	defer ch.Close()
	b.must(ch.Qos(100, 0, false)) // a stream gives nothing without it
	msgs, err := ch.ConsumeWithContext(b.ctx, queue, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	b.must(err)
	var got []amqp.Delivery
	for len(got) < n {
		m, ok := <-msgs
		if !ok {
			b.t.Fatalf("stream %s: %d of %d messages, then closed", queue, len(got), n)
		}
		b.must(m.Ack(false))
		got = append(got, m)
	}
	return got
}
