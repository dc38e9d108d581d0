package rabbit

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
)

// cloudEvent makes the message of an event in a mode, when its headers have room in a frame of the
// usual size.
func cloudEvent(t testing.TB, mode, contentType string) *message {
	t.Helper()
	s := cloudevents.Default()
	s.Mode, s.Source = mode, tpl(t, "/cdc-relay/shop/public.outbox")
	cfg := Config{Exchange: tpl(t, "events"), RoutingKey: tpl(t, "{type}"), ContentType: contentType, PlainConfig: sink.PlainConfig{Taken: Driver().CloudEvents.Taken}}
	plain, err := newPlain(&cfg)
	if err == nil {
		cfg.Encoder, err = s.Encoder(Driver().CloudEvents, nil, plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLayout(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := newMessage(&l, new(limits))
	m.limits.setFrameMax(131072)
	return &m
}

func orderPlaced() *event.Event {
	return &event.Event{
		ID: []byte("7d0c"), Aggregate: []byte("order"), Key: []byte("42"), Type: []byte("placed"), Payload: []byte("a \"text\""), PayloadKind: event.Text,
		Time: time.UnixMilli(1_700_000_000_007), Position: event.Position{Commit: pglogrepl.LSN(0x1a2b3c4d), Index: 7},
		Headers: []byte(`{"cloudEvents:id": "of the row", "cloudEvents_id": "of the row", "a": "b"}`),
	}
}

// A message has the attributes besides the relay's own headers and properties, by the AMQP protocol
// binding. What a row has under their names is dropped.
func TestCloudEventInBinaryMode(t *testing.T) {
	m := cloudEvent(t, cloudevents.Binary, "text/csv")
	if fault := m.makeChecked(orderPlaced()); fault != nil {
		t.Fatal(fault)
	}
	want := amqp.Table{
		"aggregate_type": "order", "aggregate_id": "42", "timestamp_in_ms": int64(1_700_000_000_007), "cdc_position": "000000001a2b3c4d-00000007", "a": "b",
		"cloudEvents:specversion": "1.0", "cloudEvents:id": "7d0c", "cloudEvents:source": "/cdc-relay/shop/public.outbox", "cloudEvents:type": "placed",
		"cloudEvents:subject": "order/42", "cloudEvents:time": "2023-11-14T22:13:20.007Z", "cloudEvents:partitionkey": "42",
		"cloudEvents:sequence": "000000001a2b3c4d-00000007",
	}
	if !reflect.DeepEqual(m.pub.Headers, want) {
		t.Errorf("the headers are %v\nwant %v", m.pub.Headers, want)
	}
	if m.pub.ContentType != "text/csv" || m.pub.MessageId != "7d0c" || m.pub.Type != "placed" || string(m.pub.Body) != `a "text"` || m.routingKey != "placed" {
		t.Errorf("the message is %+v with the routing key %s", m.pub, m.routingKey)
	}
}

func TestCloudEventInStructuredMode(t *testing.T) {
	m := cloudEvent(t, cloudevents.Structured, "")
	if fault := m.makeChecked(orderPlaced()); fault != nil {
		t.Fatal(fault)
	}
	if m.pub.ContentType != "application/cloudevents+json" || m.pub.MessageId != "7d0c" || len(m.pub.Headers) != 5 {
		t.Errorf("the message is %+v", m.pub)
	}
	if body := string(m.pub.Body); !strings.HasPrefix(body, `{"specversion":"1.0","id":"7d0c",`) || !strings.HasSuffix(body, `,"datacontenttype":"text/plain","partitionkey":"42",`+
		`"sequence":"000000001a2b3c4d-00000007","data":"a \"text\""}`) {
		t.Errorf("the body is %s", body)
	}
}

// A message costs no more than other messages: the values of its headers, which are boxed.
func TestCloudEventsAllocate(t *testing.T) {
	ev := orderPlaced()
	ev.Headers = nil
	for mode, most := range map[string]float64{cloudevents.Binary: 4 + 9, cloudevents.Structured: 4} {
		m := cloudEvent(t, mode, "")
		if n := testing.AllocsPerRun(100, func() {
			if fault := m.makeChecked(ev); fault != nil {
				t.Fatal(fault)
			}
		}); n > most {
			t.Errorf("%s: a message allocates %g times, want one for each of %g headers", mode, n, most)
		}
	}
}
