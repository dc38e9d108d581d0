//go:build testall

package cli

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// What is routed nowhere waits in the retry table, and comes back as it would have come then: after
// a restart, and after the table's columns are not any more what they were. What is committed since
// has the new shape.
func TestCompatComesBackAsItWas(t *testing.T) {
	t.Parallel()
	b, take := compatBroker(t, "topic.prefix: shop, 'table.fields.additional.placement': 'type:envelope:kind', table.expand.json.payload: false")
	bind := func(bound bool) {
		conn, err := amqp.Dial(b.vhost)
		must(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		must(t, err)
		if bound {
			must(t, ch.QueueBind("orders", "#", "outbox.events", false, nil))
		} else {
			must(t, ch.QueueUnbind("orders", "#", "outbox.events", nil))
		}
	}
	const insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, 'order', '7', 'created', '{"a": 1}')`
	relay := b.start()
	b.exec(insert, "11111111-1111-1111-1111-111111111111")
	before := delivery(t, take)
	bind(false)
	b.exec(insert, "22222222-2222-2222-2222-222222222222")
	says(t, relay, "/metrics", 200, "\ncdc_relay_deferred_events 1\n")
	relay.Stop(t)
	b.exec(`ALTER TABLE outbox ALTER payload SET NOT NULL, ALTER type TYPE varchar(20), ALTER type SET DEFAULT 'none', ALTER type DROP NOT NULL`)
	b.start()
	b.exec(insert, "33333333-3333-3333-3333-333333333333")
	bind(true)
	for _, want := range []struct {
		id, nulls string
		same      bool
	}{{"22222222-2222-2222-2222-222222222222", "true", true}, {"33333333-3333-3333-3333-333333333333", "false", false}} {
		d := delivery(t, take)
		if id, _ := d.Headers["id"].(string); !strings.Contains(id, want.id) || (string(d.Body) == string(before.Body)) != want.same ||
			!strings.Contains(string(d.Body), `"optional":`+want.nulls+`,"name":"io.debezium.data.Json"`) || d.RoutingKey != before.RoutingKey || len(d.Headers) != 1 {
			t.Errorf("the message is %v %s, the one before %v %s", d.Headers, d.Body, before.Headers, before.Body)
		}
	}
}

// The test message has the form of the profile.
func TestCompatCheckPublish(t *testing.T) {
	t.Parallel()
	b, take := compatBroker(t, "format.value: binary")
	b.refused(2, "check --publish", "--aggregate VALUE")
	if out := b.ok("check", "--publish", "--aggregate", "order"); !strings.Contains(out, `exchange "outbox.events", routing key "outbox.event.order" was confirmed`) || strings.Contains(out, "fail") {
		t.Errorf("check says\n%s", out)
	}
	d := delivery(t, take)
	if id, _ := d.Headers["id"].(string); string(d.Body) != `{"cdc_check": true}` || len(d.Headers) != 1 || !strings.Contains(id, "cdc-relay-check-") {
		t.Errorf("the message is %+v", d)
	}
}
