package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// line is the one line of that name that check prints as JSON.
func line(t *testing.T, res runner.Result, name string) finding {
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

// The test message goes the way of events, and is told from them by its id and a header. What it
// needs is asked for before anything is done; what the broker says of it is the line.
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
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !hasAll(f.Detail, []string{"unroutable", `routing key "created.eu"`}) || !strings.Contains(f.Fix, `declare binding source="amq.direct"`) {
		t.Errorf("without a queue: exit %d: %+v", res.Code, f)
	}
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: nowhere, routing_key: x}"
	res = b.command("check", "--publish", "--json")
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !strings.Contains(f.Detail, "404") || f.Fix == "" {
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

// overHTTP has the running relay find the same, and it changes nothing for it: a leader has its
// slot and goes on.
func (b *brokered) overHTTP() {
	t := b.t
	t.Helper()
	relay := b.start()
	b.insert(1)
	must(t, b.consumer.WaitCount(await.Context(t), 1))
	code, body, err := relay.Get(await.Context(t), "/api/v1/check")
	must(t, err)
	var got struct {
		CheckedAt string `json:"checked_at"`
		Findings  []finding
	}
	must(t, json.Unmarshal([]byte(body), &got))
	names := map[string]int{}
	for _, f := range got.Findings {
		names[f.Name]++
		if f.Level != "ok" && !ofSuperuser(f) {
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
	delete(names, "admin socket") // the relay of a test has one, its configuration does not
	for name, n := range names {
		if n != 0 {
			t.Errorf("HTTP has %d lines %q more", n, name)
		}
	}
	relay.Stop(t)
}

// documented fails for a line of check that has no row in the documentation.
func documented(t *testing.T, names ...string) {
	t.Helper()
	text := document(t, "docs/reference.md")
	for _, name := range names {
		name, _, _ = strings.Cut(name, ` "`) // of one exchange or topic
		if !strings.Contains(text, "| `"+name+"` |") {
			t.Errorf("docs/reference.md has no row for the line %q of check", name)
		}
	}
}

// ofSuperuser reports whether a line warns of what these tests are: the relay is a superuser, and
// the server keeps no commit times.
func ofSuperuser(f finding) bool {
	return f.Name == "commit times" && f.Level == "warn" && strings.Contains(f.Detail, "--order-by created_at") || f.Name == "audit" && f.Level == "warn" && strings.Contains(f.Detail, "only as safe as its password")
}

// Those of some setups only have their row, too. TestCheckOfAGoodSetup and TestKafkaFromInitToStop
// have the others.
func TestCheckIsDocumented(t *testing.T) {
	t.Parallel()
	documented(t, "rows", "messages", "schema owner", "test message", "login", "broker configuration", "unheld slot")
}
