package rabbit

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// asServer publishes as Debezium Server would, with these options, of a table that has the usual
// columns and one more.
func asServer(b *broker, options map[string]string) Config {
	cfg := b.config()
	records, faults := debezium.Parse(debezium.Server, options)
	if len(faults) > 0 {
		b.t.Fatalf("%+v", faults)
	}
	_, exchange, routingKey := records.Templates()
	cfg.Exchange, cfg.RoutingKey, cfg.Columns = tpl(b.t, exchange), tpl(b.t, routingKey), records.Columns().Extra
	copies, err := newPlain(&cfg)
	b.must(err)
	cfg.Encoder, err = records.Encoder(cfg.Columns, copies)
	b.must(err)
	return cfg
}

// shape is that of the tests' table.
var shape = &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{
	{Name: "aggregateid", TypeOID: pgtype.VarcharOID, Typmod: -1, NotNull: true},
	{Name: "aggregatetype", TypeOID: pgtype.VarcharOID, Typmod: -1, NotNull: true},
	{Name: "id", TypeOID: pgtype.UUIDOID, Typmod: -1, NotNull: true},
	{Name: "payload", TypeOID: pgtype.JSONBOID, Typmod: -1},
	{Name: "type", TypeOID: pgtype.VarcharOID, Typmod: -1, NotNull: true},
}}

// outboxRow is a row of that table; its extra column is the type, when there is one.
func outboxRow(cfg *Config, id, route, key, payload string) *event.Event {
	ev := newEvent(key, "created")
	ev.ID, ev.Aggregate, ev.Type, ev.Payload = []byte(id), []byte(route), nil, []byte(payload)
	ev.Shape = shape
	if len(cfg.Columns) == 1 {
		ev.Columns = [][]byte{[]byte("created")}
	}
	return ev
}

const anID = "10b1c3ff-1d4b-4f0e-8d38-000000000001"

// What arrives has the delivery mode, the headers and the body, and no other property; where it
// arrives follows the sink's rules.
func TestProfileMessage(t *testing.T) {
	b := newBroker(t)
	for _, exchange := range []string{"outbox.event.order", "events"} {
		b.bare(exchange, "topic")
		b.queue(exchange, nil)
	}
	text := map[string]string{"format.key": "simplestring", "format.value": "simplestring"}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{text, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	const schema = `{"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1},"payload":"` + anID + `"}`
	for _, c := range []struct {
		name                 string
		options              map[string]string
		exchange, routingKey string
		headers              amqp.Table
		body                 string
		mode                 uint8
	}{
		{
			"defaults", nil, "outbox.event.order", "",
			amqp.Table{"id": schema},
			`{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":"{\"a\": 1}"}`, 2,
		},
		{
			"strings", with(map[string]string{"sink.rabbitmq.routingKey": "fixed", "format.header.schemas.enable": "false"}),
			"outbox.event.order", "fixed",
			amqp.Table{"id": `"` + anID + `"`},
			`{"a": 1}`, 2,
		},
		{
			"by topic", with(map[string]string{"sink.rabbitmq.exchange": "events", "sink.rabbitmq.routingKey.source": "topic", "sink.rabbitmq.deliveryMode": "1"}),
			"events", "outbox.event.order",
			amqp.Table{"id": schema},
			`{"a": 1}`, 1,
		},
		{
			"by key", with(map[string]string{"sink.rabbitmq.exchange": "events", "sink.rabbitmq.routingKey.source": "key"}),
			"events", "k1",
			amqp.Table{"id": schema},
			`{"a": 1}`, 2,
		},
		{
			"bytes", with(map[string]string{
				"format.header": "clientprovided", "format.header.class": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
				"table.fields.additional.placement": "type:header:eventType",
			}),
			"outbox.event.order", "",
			amqp.Table{"id": []byte(anID), "eventType": []byte("created")},
			`{"a": 1}`, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.must(b.ch.QueueBind(c.exchange, c.routingKey, c.exchange, false, nil))
			cfg := asServer(b, c.options)
			s := start(t, cfg)
			wantConfirmed(t, s.send(outboxRow(&cfg, anID, "order", "k1", `{"a": 1}`)))
			m := b.take(c.exchange, 1)[0]
			if m.Exchange != c.exchange || m.RoutingKey != c.routingKey || string(m.Body) != c.body || m.DeliveryMode != c.mode || !reflect.DeepEqual(m.Headers, c.headers) {
				t.Errorf("got %+v", m)
			}
			if m.ContentType+m.MessageId+m.Type+m.CorrelationId+m.AppId+m.Expiration != "" || m.Priority != 0 || !m.Timestamp.IsZero() {
				t.Errorf("it has properties that Debezium Server gives none: %+v", m)
			}
		})
	}
}

// A NULL payload is the text null.value under simplestring, and nothing but that.
func TestProfileNullValue(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	for want, more := range map[string]string{"default": "", "void": "void"} {
		options := map[string]string{"format.value": "simplestring", "sink.rabbitmq.exchange": "events"}
		if more != "" {
			options["sink.rabbitmq.null.value"] = more
		}
		cfg := asServer(b, options)
		ev := outboxRow(&cfg, anID, "order", "k", "")
		ev.Payload = nil
		wantConfirmed(t, start(t, cfg).send(ev))
		if m := b.take("events", 1)[0]; string(m.Body) != want {
			t.Errorf("the body is %q, want %q", m.Body, want)
		}
	}
}

// What is routed nowhere comes back, though it is acked: its event is rejected, and no other is.
func TestProfileReturns(t *testing.T) {
	b := newBroker(t)
	b.bare("events", "direct")
	b.queue("events", nil)
	b.must(b.ch.QueueBind("events", "outbox.event.order", "events", false, nil))
	cfg := asServer(b, map[string]string{"sink.rabbitmq.exchange": "events", "sink.rabbitmq.routingKey.source": "topic"})
	s := start(t, cfg)
	var call []*event.Event
	for i := range 20 {
		route := "order"
		if i%5 == 2 {
			route = "nobody"
		}
		call = append(call, outboxRow(&cfg, anID, route, fmt.Sprint("key-", i), "{}"))
	}
	outcomes := s.send(call...)
	wantConfirmed(t, outcomes, 2, 7, 12, 17)
	for _, i := range []int{2, 7, 12, 17} {
		wantRejected(t, outcomes[i], sink.Destination, sink.Unroutable)
	}
	if n := len(b.take("events", 16)); n != 16 || b.depth("events") != 0 {
		t.Errorf("%d messages and more are in the queue, want 16", n)
	}
}

// Two events of one call have the same destination, and one of them is routed nowhere. The return
// does not say which, so neither is taken for delivered: a duplicate is what it costs.
func TestProfileReturnTakesItsDestination(t *testing.T) {
	b := newBroker(t)
	b.bare("events", "headers")
	b.queue("events", nil)
	b.must(b.ch.QueueBind("events", "", "events", false, amqp.Table{"x-match": "all", "type": `"created"`}))
	cfg := asServer(b, map[string]string{
		"sink.rabbitmq.exchange": "events", "table.fields.additional.placement": "type:header", "format.header.schemas.enable": "false",
	})
	s := start(t, cfg)
	call := []*event.Event{outboxRow(&cfg, anID, "order", "a", "{}"), outboxRow(&cfg, anID, "order", "b", "{}")}
	call[1].Columns[0] = []byte("ended")
	for _, o := range s.send(call...) {
		wantRejected(t, o, sink.Destination, sink.Unroutable)
	}
}

// A return that is nobody's would be an event lost: all of the round are in doubt, and sent again.
func TestProfileReturnOfNobody(t *testing.T) {
	for name, strange := range map[string]amqp.Return{
		"elsewhere":                {Exchange: "other"},
		"with a position of a row": {Exchange: "other", Headers: amqp.Table{sink.HeaderPosition: "0000000000000001-00000000"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			b.exchange("events", nil)
			cfg := asServer(b, map[string]string{"sink.rabbitmq.exchange": "events"})
			s := start(t, cfg)
			wantConfirmed(t, s.send(outboxRow(&cfg, anID, "order", "a", "{}")))
			l := s.lanes[0]
			outcomes := make([]sink.Outcome, 1)
			l.beginCall([]*event.Event{outboxRow(&cfg, anID, "order", "a", "{}")}, outcomes)
			ch, err := l.openChannel(b.ctx)
			b.must(err)
			l.sendRound(b.ctx, ch)
			ch.Returns <- strange
			end := l.awaitAnswers(b.ctx, ch)
			if err := l.concludeRound(b.ctx, ch, end, l.resolveRound(ch)); err == nil || outcomes[0].State != sink.Unknown {
				t.Errorf("%s, %v", outcomes[0].State, err)
			}
			l.endCall()
		})
	}
}

// An event of which there is no record is refused for ever, alone, and for a reason that contains
// nothing of the row.
func TestProfileCannotRender(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	cfg := asServer(b, map[string]string{"sink.rabbitmq.exchange": "events", "format.value": "binary"})
	s := start(t, cfg)
	bad := outboxRow(&cfg, anID, "order", "a", `{"secret": 1}`) // no bytes, and no delegate
	null := outboxRow(&cfg, anID, "order", "b", `{}`)
	null.Aggregate = nil
	old := outboxRow(&cfg, anID, "order", "c", `{}`)
	old.Shape = nil
	noKey := outboxRow(&cfg, anID, "order", "d", `{}`)
	noKey.Shape = &event.Shape{Columns: []event.ColumnShape{{Name: "aggregatetype", TypeOID: pgtype.TextOID, Typmod: -1}}}
	for i, o := range s.send(bad, null, old, noKey) {
		wantRejected(t, o, sink.Permanent, []sink.Reason{sink.Invalid, sink.NullInTemplate, sink.Invalid, sink.Invalid}[i])
	}
	// Where they would have gone is known of those that have a topic, so that a replay goes there.
	for _, ev := range []*event.Event{bad, noKey} {
		if r := s.Route(ev); string(r.Name) != "events" || r.RoutingKey == nil {
			t.Errorf("the route of an event without a record is %+v", r)
		}
	}
}

// An event of the retry table goes where it was going, in the form of now.
func TestProfileKeepsTheRoute(t *testing.T) {
	b := newBroker(t)
	b.exchange("before", nil)
	cfg := asServer(b, map[string]string{"sink.rabbitmq.exchange": "events", "format.value": "simplestring"})
	s := start(t, cfg)
	ev := outboxRow(&cfg, anID, "order", "a", `{"a": 1}`)
	ev.Route = &event.Route{Name: []byte("before"), RoutingKey: []byte("then")}
	wantConfirmed(t, s.send(ev))
	if m := b.take("before", 1)[0]; m.RoutingKey != "then" || string(m.Body) != `{"a": 1}` {
		t.Errorf("the message is %+v", m)
	}
}

// A routing key that is made from keys may be about a person: it is not shown.
func TestProfileShowsNoKeys(t *testing.T) {
	b := newBroker(t)
	b.bare("events", "direct")
	cfg := asServer(b, map[string]string{"format.key": "simplestring", "sink.rabbitmq.exchange": "events", "sink.rabbitmq.routingKey.source": "key"})
	s := start(t, cfg)
	ev := outboxRow(&cfg, anID, "order", "ann@example.org", "{}")
	o := s.send(ev)[0]
	wantRejected(t, o, sink.Destination, sink.Unroutable)
	if want := `exchange "events", routing key "{key}"`; o.Fault.Destination != want {
		t.Errorf("the destination is shown as %s, want %s", o.Fault.Destination, want)
	}
	if key := s.SentTo(ev).RoutingKey; key != "{key}" {
		t.Errorf("a span shows the routing key %q", key)
	}
	if r := s.Route(ev); string(r.Name) != "events" || string(r.RoutingKey) != "ann@example.org" {
		t.Errorf("the route is %q", r)
	}
}

// A place costs nothing on the heap, and a message no more than the table of its headers.
func TestProfileAllocates(t *testing.T) {
	b := &broker{t: t, url: "amqp://localhost"}
	cfg := asServer(b, map[string]string{"format.key": "simplestring", "format.value": "simplestring", "sink.rabbitmq.routingKey.source": "key"})
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ev := outboxRow(&cfg, anID, "order", "a", `{"a": 1}`)
	ev.Position, ev.CommitTime = event.Position{Commit: pglogrepl.LSN(1)}, time.Now()
	// the pool of records is emptied now and then; under the race detector one of four is lost
	if n := testing.AllocsPerRun(100, func() { s.Place(ev) }); n > 1 {
		t.Errorf("a place allocates %g times", n)
	}
	m := newMessage(&s.layout, &s.limits)
	if n := testing.AllocsPerRun(100, func() {
		if fault := m.makeChecked(ev); fault != nil {
			t.Fatal(fault)
		}
	}); n > 1 {
		t.Errorf("a message allocates %g times, want one for its one header", n)
	}
}
