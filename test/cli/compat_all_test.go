//go:build testall

package cli

import (
	"fmt"
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
	says(t, relay, "/metrics", 200, "\noutbox_deferred_events 1\n")
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

// A table is altered while its rows come: each record has the schema of its time.
func TestCompatTableAltered(t *testing.T) {
	t.Parallel()
	k := compatKafka(t, 1, `value.converter: org.apache.kafka.connect.storage.StringConverter, table.fields.additional.placement: 'region:header', table.field.additional.missing: ignore`)
	k.start()
	inserted := 0
	insert := func(columns, values string) {
		k.exec(`INSERT INTO outbox (id, aggregatetype, type, payload, aggregateid` + columns + `) VALUES (gen_random_uuid(), 'order', 'created', '1', ` + values + `)`)
		inserted++
		// NOT NULL and the default are the catalogue's when the row comes by, not when it was
		// written
		k.records(k.topic, inserted)
	}
	insert("", "7")
	k.exec(`ALTER TABLE outbox ALTER aggregateid TYPE bigint USING aggregateid::bigint, ALTER aggregateid DROP NOT NULL`)
	insert("", "7")
	k.exec(`ALTER TABLE outbox ADD COLUMN region text, ALTER aggregateid SET DEFAULT 5`)
	insert(", region", "7, 'eu'")
	k.exec(`CREATE DOMAIN amount AS numeric(6,2); ALTER TABLE outbox ALTER aggregateid DROP DEFAULT, ALTER aggregateid TYPE amount`)
	insert(", region", "7, NULL")
	k.exec(`CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN feeling AS mood; ALTER TABLE outbox ALTER aggregateid TYPE feeling USING 'sad', ALTER aggregateid SET DEFAULT 'sad'::mood`)
	insert("", "'ok'")
	k.exec(`CREATE EXTENSION citext; ALTER TABLE outbox ALTER aggregateid DROP DEFAULT, ALTER aggregateid TYPE citext USING 'x', ALTER aggregateid SET DEFAULT 'none'`)
	insert("", "'Eu'")
	want := []string{
		`{"schema":{"type":"string","optional":false},"payload":"7"} []`,
		`{"schema":{"type":"int64","optional":true},"payload":7} []`,
		`{"schema":{"type":"int64","optional":true,"default":5},"payload":7} [eu]`,
		`{"schema":{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"6"}},"payload":"Arw="} [` + null + `]`,
		`{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"sad,ok"},"default":"sad"},"payload":"ok"} [` + null + `]`,
		`{"schema":{"type":"string","optional":true},"payload":"Eu"} [` + null + `]`,
	}
	for i, r := range k.records(k.topic, len(want)) {
		var regions []string
		for _, h := range r.Headers[1:] {
			regions = append(regions, orNull(h.Value))
		}
		if got := fmt.Sprint(string(r.Key), " ", regions); got != want[i] {
			t.Errorf("record %d has %s, want %s", i, got, want[i])
		}
	}
}

// An event of which there is no record is a dead letter with all that it was made of; when the
// options are fixed it is replayed. So is one whose column has become of a type that is not
// rendered, while the relay runs: it says the type's name.
func TestCompatCannotRender(t *testing.T) {
	t.Parallel()
	k := compatKafka(t, 1, `key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.converters.ByteArrayConverter`)
	relay := k.start()
	const id = "11111111-1111-1111-1111-111111111111"
	k.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('` + id + `', 'order', '7', 'created', '{"a": 1}')`)
	says(t, relay, "/metrics", 200, "\noutbox_dead_letters 1\n")
	out := k.ok("dead-letters", "show", "1")
	if !strings.Contains(out, "ByteArrayConverter takes bytes only") || !strings.Contains(out, id) || strings.Contains(out, "cdc_relay.shape") {
		t.Errorf("the dead letter is shown as\n%s", out)
	}
	relay.Stop(t)
	k.options(stringConverters)
	k.start()
	k.ok("dead-letters", "replay", "1")
	r := k.records(k.topic, 1)[0]
	if want := "7\n{\"a\": 1}\nid: " + id + "\n"; shown(&r) != want {
		t.Errorf("the record is %q, want %q", shown(&r), want)
	}
	k.exec(`CREATE EXTENSION hstore; ALTER TABLE outbox ALTER aggregateid TYPE hstore USING 'a=>1'`)
	k.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'a=>2', 'created', '1')`)
	eventually(t, func() string {
		n := ask[int64](k.rig, `SELECT max(n) FROM cdc_relay.dead_letter`)
		if out := k.command("dead-letters", "show", fmt.Sprint(n)); !strings.Contains(out.Stdout, `column "aggregateid": type public.hstore is not supported here`) {
			return "the newest dead letter is shown as " + out.Stdout + out.Stderr
		}
		return ""
	})
}

// A table is refused before a slot is made when its rows would all be dead letters: of types that a
// Relation frame does not tell, too.
func TestCompatTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sink = "  stdout: {}\n  compat: {profile: debezium-connect, options: {" + stringConverters + ", table.fields.additional.placement: 'extra:header'}}"
	r.exec(`CREATE EXTENSION hstore; CREATE DOMAIN tags AS text[]; CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN feeling AS mood; CREATE DOMAIN name_of AS varchar(9)`)
	r.exec(`ALTER TABLE outbox ADD extra hstore`)
	for _, c := range [][2]string{
		{"hstore", "type public.hstore is not supported"},
		{"numeric(5,-2)", "type numeric with a negative scale"},
		{"tags", "type _text is not supported"},
		{"mood[]", "type public.mood[] is not supported"},
		{"money", "type money is not supported"},
	} {
		r.exec(`ALTER TABLE outbox DROP extra, ADD extra ` + c[0])
		r.refused(4, "run", `column "extra": `+c[1], "keep Debezium for this table")
		if out := r.command("check"); out.Code != 1 || !strings.Contains(out.Stdout, c[1]) {
			t.Errorf("of %s check says, with exit %d,\n%s", c[0], out.Code, out.Stdout)
		}
	}
	r.exec(`ALTER TABLE outbox DROP extra, ADD extra timestamp DEFAULT 'infinity'`)
	r.refused(4, "run", "a default of infinity")
	for _, column := range []string{"feeling", "name_of", "numeric(5,2)"} {
		r.exec(`ALTER TABLE outbox DROP extra, ADD extra ` + column)
		if out := r.command("check"); strings.Contains(out.Stdout+out.Stderr, "not supported") || !strings.Contains(out.Stdout, "the mapping fits") {
			t.Errorf("of %s check says\n%s%s", column, out.Stdout, out.Stderr)
		}
	}
}

// The test message has the form of the profile.
func TestCompatCheckPublish(t *testing.T) {
	t.Parallel()
	b, take := compatBroker(t, "format.value: binary")
	b.refused(2, "check --publish", "--aggregate VALUE")
	if out := b.ok("check", "--publish", "--aggregate", "order"); !strings.Contains(out, `exchange "outbox.events", routing key "outbox.event.order" was confirmed`) {
		t.Errorf("check says\n%s", out)
	}
	d := delivery(t, take)
	if id, _ := d.Headers["id"].(string); string(d.Body) != `{"cdc_check": true}` || len(d.Headers) != 1 || !strings.Contains(id, "cdc-relay-check-") {
		t.Errorf("the message is %+v", d)
	}
}
