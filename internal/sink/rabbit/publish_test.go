package rabbit

import (
	"encoding/json"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestMessage(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.RoutingKey = tpl(t, "{aggregate}.{type}.{column:region}")
	cfg.Columns = []string{"region", "corr", "prio", "ttl", "tenant", "nothing", "mime"}
	cfg.Headers = []setting.NamedColumn{{Name: "x-tenant", Column: "tenant"}, {Name: "x-nothing", Column: "nothing"}}
	cfg.ContentTypeColumn, cfg.CorrelationID, cfg.Priority, cfg.Expiration = "mime", "corr", "prio", "ttl"
	var dropped []string
	cfg.Traceparent = func(ev *event.Event, buf []byte) []byte {
		return append(append(buf, "span of "...), ev.Traceparent[3:9]...)
	}
	cfg.HeaderDropped = func(name string) { dropped = append(dropped, name) }
	s := start(t, cfg)

	ev := newEvent("42", "created")
	ev.Time = time.UnixMilli(1700000000123)
	ev.Traceparent = []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ev.Columns = [][]byte{[]byte("eu"), []byte("c-1"), []byte("7"), []byte("60000"), []byte("acme"), nil, []byte("application/x-protobuf")}
	ev.Headers = []byte(`{"s": "text ü \" \\", "i": -42, "big": 12345678901234567890, "f": 1.5, "e": 1e400, "t": true, "n": null,
		"o": {"a": [1, 2]}, "a": ["x"], "aggregate_id": "forged", "x-retry-count": 3, "x-tenant": "overridden", "": "unnamed"}`)
	wantConfirmed(t, s.send(ev))

	m := b.take("events", 1)[0]
	want := amqp.Delivery{
		RoutingKey: "order.created.eu", MessageId: string(ev.ID), Type: "created", ContentType: "application/x-protobuf",
		CorrelationId: "c-1", Priority: 7, Expiration: "60000", DeliveryMode: amqp.Persistent, Timestamp: time.Unix(1700000000, 0),
	}
	if m.RoutingKey != want.RoutingKey || m.MessageId != want.MessageId || m.Type != want.Type || m.ContentType != want.ContentType ||
		m.CorrelationId != want.CorrelationId || m.Priority != want.Priority || m.Expiration != want.Expiration ||
		m.DeliveryMode != want.DeliveryMode || !m.Timestamp.Equal(want.Timestamp) || string(m.Body) != string(ev.Payload) {
		t.Errorf("got %+v", m)
	}
	headers := amqp.Table{
		"aggregate_type": "order", "aggregate_id": "42", "timestamp_in_ms": int64(1700000000123),
		"cdc_position": ev.Position.String(), "traceparent": "span of 0af765", "x-tenant": "acme",
		"s": `text ü " \`, "i": int64(-42), "big": "12345678901234567890", "f": 1.5, "e": "1e400", "t": true, "n": nil,
		"o": `{"a": [1, 2]}`, "a": `["x"]`, "": "unnamed",
	}
	got, _ := json.Marshal(m.Headers)
	wantJSON, _ := json.Marshal(headers)
	if string(got) != string(wantJSON) {
		t.Errorf("headers\n got %s\nwant %s", got, wantJSON)
	}
	for name, value := range headers {
		if m.Headers[name] != value {
			t.Errorf("header %q: got %T %v, want %T %v", name, m.Headers[name], m.Headers[name], value, value)
		}
	}
	if len(dropped) != 2 {
		t.Errorf("dropped %v, want aggregate_id and x-retry-count", dropped)
	}

	ev, trace := newEvent("43", "created"), ev.Traceparent
	ev.Time, ev.Columns, ev.Headers = time.UnixMilli(-1), make([][]byte, len(cfg.Columns)), []byte(`{"price": 12345678901234567.89}`)
	ev.Columns[0], ev.Traceparent = []byte("eu"), trace
	wantConfirmed(t, s.send(ev))
	m = b.take("events", 1)[0]
	if !m.Timestamp.IsZero() || m.Headers["timestamp_in_ms"] != int64(-1) || m.Headers["price"] != "12345678901234567.89" || m.ContentType != "application/json" {
		t.Errorf("before 1970: %+v", m)
	}
}

func TestPayloads(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	big := make([]byte, 15<<20) // RabbitMQ 4 takes 16
	for i := range big {
		big[i] = byte(i * 7)
	}
	cases := []struct {
		kind        event.PayloadKind
		payload     []byte
		contentType string
	}{
		{event.JSON, nil, "application/json"},
		{event.Text, []byte{}, "text/plain"},
		{event.Binary, []byte{0, 255, 254}, "application/octet-stream"},
		{event.Binary, big, "application/octet-stream"},
	}
	for _, c := range cases {
		ev := newEvent("k", "t")
		ev.PayloadKind, ev.Payload, ev.Key = c.kind, c.payload, nil
		wantConfirmed(t, s.send(ev))
		m := b.take("events", 1)[0]
		if m.ContentType != c.contentType || string(m.Body) != string(c.payload) {
			t.Errorf("%s: got %s and %d bytes", c.contentType, m.ContentType, len(m.Body))
		}
		if _, has := m.Headers["aggregate_id"]; has {
			t.Error("a NULL key made a header")
		}
	}
}
