package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// line is the one line of that name that check prints as JSON.
func line(t *testing.T, res devenv.Result, name string) finding {
	t.Helper()
	var found []finding
	for _, f := range checked(t, res.Stdout) {
		if f.Name == name {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines are named %q: %s%s", len(found), name, res.Stdout, res.Stderr)
	}
	return found[0]
}

// The test message goes the way of events, and is told from them by its id and a header. What it needs is asked for before
// anything is done; what the broker says of it is the line.
func TestCheckPublishes(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	take := b.queue(t)
	b.ok("init")
	for _, f := range checked(t, b.ok("check", "--json")) {
		if f.Name == "test message" {
			t.Errorf("without --publish: %+v", f)
		}
	}
	if d := take(); d != nil {
		t.Fatalf("without --publish %s was published", d.MessageId)
	}
	b.refused(2, "check --publish", "--aggregate VALUE")
	b.refused(2, "check --aggregate order", "--publish")

	res := b.command("check", "--publish", "--aggregate", "order", "--key", "7", "--json")
	if f := line(t, res, "test message"); res.Code != 0 || f.Level != "ok" || !hasAll(f.Detail, []string{"cdc-relay-check-", `exchange "outbox.events"`, `routing key "order.cdc_relay_check"`, "confirmed"}) {
		t.Errorf("exit %d: %+v", res.Code, f)
	}
	d := next(t, take)
	if !strings.HasPrefix(d.MessageId, "cdc-relay-check-") || header(d, "cdc_check") != "true" || string(d.Body) != `{"cdc_check": true}` || d.Type != "cdc_relay_check" ||
		header(d, "aggregate_id") != "7" || d.RoutingKey != "order.cdc_relay_check" {
		t.Errorf("what came is %+v", d)
	}

	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: amq.direct, routing_key: '{type}.{column:region}'}"
	b.exec(`ALTER TABLE outbox ADD COLUMN region text`)
	b.refused(2, "check --publish", "--column region=VALUE")
	res = b.command("check", "--publish", "--type", "created", "--column", "region=eu", "--json")
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !hasAll(f.Detail, []string{"unroutable", `routing key "created.eu"`}) || !strings.Contains(f.Mend, `declare binding source="amq.direct"`) {
		t.Errorf("without a queue: exit %d: %+v", res.Code, f)
	}
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: nowhere, routing_key: x}"
	res = b.command("check", "--publish", "--json")
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !strings.Contains(f.Detail, "404") || f.Mend == "" {
		t.Errorf("without an exchange: exit %d: %+v", res.Code, f)
	}
	b.sink = "  rabbitmq: {url: 'amqp://127.0.0.1:1/', routing_key: x}"
	res = b.command("check", "--publish", "--json")
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !strings.Contains(f.Detail, "no broker was reached") {
		t.Errorf("without a broker: exit %d: %+v", res.Code, f)
	}
	b.sink = "  stdout: {}"
	b.refused(2, "check --publish", "sink.stdout")
}

func TestCheckPublishesToKafka(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 3)
	k.ok("init")
	res := k.command("check", "--publish", "--key", "7", "--json")
	if f := line(t, res, "test message"); res.Code != 0 || f.Level != "ok" || !strings.Contains(f.Detail, k.topic) {
		t.Errorf("exit %d: %+v", res.Code, f)
	}
	r := k.records(k.topic, 1)[0]
	if !strings.HasPrefix(r.Header("id"), "cdc-relay-check-") || r.Header("cdc_check") != "true" || string(r.Key) != "7" || string(r.Value) != `{"cdc_check": true}` {
		t.Errorf("what came is %+v", r)
	}
	k.publishTo(k.kafka.Brokers(), k.topic+"{aggregate}")
	k.refused(2, "check --publish", "--aggregate VALUE")
	res = k.command("check", "--publish", "--aggregate", "x", "--json")
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !strings.Contains(f.Detail, "no_topic") || !strings.Contains(f.Mend, "--create --topic "+k.topic+"x") {
		t.Errorf("without a topic: exit %d: %+v", res.Code, f)
	}
	k.publishTo(k.kafka.Brokers(), k.topic+"{type}")
	if f := line(t, k.command("check", "--json"), "ordering"); f.Level != "warn" || !strings.Contains(f.Mend, k.topic+`"`) {
		t.Errorf("a topic of each type: %+v", f)
	}
}

// The running relay finds the same, and it changes nothing for it: a leader has its slot and goes on.
func TestCheckOverHTTP(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	relay := b.start()
	b.insert(1)
	must(t, b.consumer.WaitCount(within(t, bound), 1))
	code, body, err := relay.Get(within(t, bound), "/api/v1/check")
	must(t, err)
	var got struct {
		CheckedAt string `json:"checked_at"`
		Findings  []finding
	}
	must(t, json.Unmarshal([]byte(body), &got))
	names := map[string]int{}
	for _, f := range got.Findings {
		names[f.Name]++
		if f.Level != "ok" {
			t.Errorf("of a good setup: %+v", f)
		}
	}
	if code != 200 || got.CheckedAt == "" {
		t.Errorf("it answers %d: %s", code, body)
	}
	for _, f := range checked(t, b.ok("check", "--json")) {
		if names[f.Name]--; names[f.Name] < 0 {
			t.Errorf("the command has %+v besides", f)
		}
	}
	for name, n := range names {
		if n != 0 {
			t.Errorf("HTTP has %d lines %q more", n, name)
		}
	}
	relay.Stop(t)
}

// Every line has its row in the documentation.
func TestCheckIsDocumented(t *testing.T) {
	t.Parallel()
	text := document(t, "docs/operations.md")
	names := map[string]bool{}
	b := withBroker(t)
	k := withKafka(t, 3)
	for _, r := range []*rig{b.rig, k.rig} {
		r.ok("init")
		for _, f := range checked(t, r.ok("check", "--json")) {
			name, _, _ := strings.Cut(f.Name, ` "`) // of one exchange or topic
			names[name] = true
		}
	}
	for _, name := range []string{"rows", "messages", "test message", "login", "broker configuration", "idle_replication_slot_timeout"} { // of some setups only
		names[name] = true
	}
	for name := range names {
		if !strings.Contains(text, "| `"+name+"` |") {
			t.Errorf("docs/operations.md has no row for the line %q of check", name)
		}
	}
}

// A PostgreSQL that takes connections and says nothing takes its own time, not the broker's.
func TestCheckOfASilentPostgreSQL(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	p := proxy(t, devenv.SharedPostgres(t).Addr())
	p.Stall()
	b.db = through(b.db, p.Addr())
	res, err := devenv.RunCommand(within(t, 4*bound), b.binary, b.yaml(), "check", "--json")
	must(t, err)
	if f := line(t, res, "postgres"); res.Code != 1 || f.Level != "fail" {
		t.Errorf("exit %d: %+v", res.Code, f)
	}
	if f := line(t, res, `exchange "outbox.events"`); f.Level != "ok" {
		t.Errorf("%+v", f)
	}
}
