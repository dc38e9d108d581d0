package cli

import (
	"bytes"
	"strconv"
	"strings"
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

// Rows of every size and kind are delivered byte for byte, or rejected by name: never a crash, never silence. The role's
// own bytea_output has no effect, and the largest is five windows.
func TestPayloads(t *testing.T) {
	t.Parallel()
	role := newRole(t, "LOGIN SUPERUSER")
	b := withBroker(t)
	b.exec(`ALTER TABLE outbox DROP COLUMN payload, ADD COLUMN payload bytea`)
	b.exec(`ALTER ROLE ` + role + ` SET bytea_output = 'escape'`)
	b.db = as(b.db, role, "")
	b.more = "delivery: {window_bytes: 4MiB, lanes: 1024}\n"
	take := b.queue(t)
	relay := b.start()

	insert := func(key, typ string, headers, payload any) {
		t.Helper()
		b.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, headers, payload) VALUES (gen_random_uuid(), 'a', $1, $2, $3, $4)`,
			key, typ, headers, payload)
	}
	large := bytes.Repeat([]byte("0123456789abcdef\x00\xff\\"), 20<<20/19)
	want := map[string][]byte{"20 MB": large, "empty": {}, "null": {}, "not UTF-8": []byte("a\xff\xfe\x00\\x41'z")}
	insert("large", "20 MB", nil, large)
	insert("empty", "empty", nil, []byte{})
	insert("null", "null", nil, nil)
	insert("bytes", "not UTF-8", nil, want["not UTF-8"])
	insert(strings.Repeat("k", 1<<20), "a key of 1 MB", nil, []byte("x"))
	insert("headers", "10,000 headers", manyHeaders(10_000), []byte("x"))
	insert("few", "1,000 headers", manyHeaders(1_000), []byte("x"))
	want["1,000 headers"] = []byte("x")

	for len(want) > 0 {
		var d *amqp.Delivery
		eventually(t, func() string {
			if d = take(); d == nil {
				return "nothing arrives any more"
			}
			return ""
		})
		body, ok := want[d.Type]
		if !ok || !bytes.Equal(d.Body, body) || d.ContentType != "application/octet-stream" || d.DeliveryMode != amqp.Persistent {
			t.Errorf("%q arrives with %d bytes, %s", d.Type, len(d.Body), d.ContentType)
		}
		if d.Type == "1,000 headers" && (len(d.Headers) < 1000 || d.Headers["h999"] != int64(999)) {
			t.Errorf("it has %d headers", len(d.Headers))
		}
		delete(want, d.Type)
	}
	var s status
	eventually(t, func() string {
		if s = state(t, relay, "held"); s.HeldTotal != 2 {
			return "not both are held"
		}
		return ""
	})
	for _, h := range s.Held {
		if h.Reason != "too_large" || !strings.Contains(h.Words, "headers and properties have") || h.ID == "" {
			t.Errorf("held is %+v", h)
		}
	}
}

// manyHeaders is a JSON object of n small numbers.
func manyHeaders(n int) string {
	var out strings.Builder
	out.WriteString(`{"h0": 0`)
	for i := 1; i < n; i++ {
		out.WriteString(`, "h` + strconv.Itoa(i) + `": ` + strconv.Itoa(i))
	}
	return out.String() + "}"
}

// What a message says of itself.
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
	var d *amqp.Delivery
	eventually(t, func() string {
		if d = take(); d == nil {
			return "no message"
		}
		return ""
	})
	if d.Exchange != "outbox.events" || d.RoutingKey != "order.created" || d.MessageId != "11111111-1111-1111-1111-111111111111" || d.Type != "created" ||
		d.ContentType != "application/json" || d.DeliveryMode != amqp.Persistent || d.Timestamp.Unix() != 1767323045 || d.Priority != 5 ||
		string(d.Body) != `{"total": 12.50}` {
		t.Errorf("the message is %+v", d)
	}
	position, _ := d.Headers["cdc_position"].(string)
	for name, want := range map[string]any{
		"aggregate_type": "order", "aggregate_id": "7", "timestamp_in_ms": int64(1767323045678), "traceparent": "00-trace",
		"tenant": "a", "n": int64(3), "region": "eu", "cdc_position": position,
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
