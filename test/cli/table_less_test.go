// This file is about an outbox without a table: events that are logical messages.
package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// withMessages is a rig that relays the messages of a prefix, and takes what arrives one by one.
// tables: as in the configuration.
func withMessages(t *testing.T, tables string) (b *brokered, take func() *amqp.Delivery) {
	t.Helper()
	b = withBroker(t)
	b.source = "  message_prefix: outbox\n  tables: " + tables
	return b, b.queue(t)
}

// next is the next message that arrives.
func next(t *testing.T, take func() *amqp.Delivery) *amqp.Delivery {
	t.Helper()
	var d *amqp.Delivery
	eventually(t, func() string {
		if d = take(); d == nil {
			return "no message"
		}
		return ""
	})
	return d
}

func header(d *amqp.Delivery, name string) string { return fmt.Sprint(d.Headers[name]) }

// What arrives of a logical message is what would arrive of a row; and what was rolled back, or is
// not transactional, does not.
func TestLogicalMessage(t *testing.T) {
	t.Parallel()
	b, take := withMessages(t, "[]")
	b.exec(`DROP TABLE outbox`)
	b.more = "outbox: {timestamp: created_at, headers: {region: region}}\n"
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', properties: {priority: prio}, routing_key: '{aggregate}.{column:channel}'}"
	b.ok("init")
	if out := b.ok("check"); !strings.Contains(out, `prefix "outbox"`) || strings.Contains(out, "the mapping fits") {
		t.Errorf("check says %s", out)
	}
	relay := b.start()
	b.exec(`BEGIN; SELECT pg_logical_emit_message(true, 'outbox', '{"id": "undone", "aggregatetype": "order"}');
		SELECT pg_logical_emit_message(false, 'outbox', '{"id": "plain"}'); ROLLBACK`)
	b.exec(`SELECT pg_logical_emit_message(true, 'outbox', '{"id": 7, "aggregatetype": "order", "aggregateid": "\u0034\u0032", "type": "created",
		"payload": {"total":   12.50, "b": 1, "a": "\u0041"}, "headers": {"tenant": "a", "n": 3, "x-retry-count": 4, "aggregate_id": "forged"},
		"traceparent": "00-trace", "created_at": "2026-01-02T03:04:05.678Z", "region": "eu", "prio": 5, "channel": "web", "more": null}')`)
	b.exec(`SELECT pg_logical_emit_message(false, 'outbox', '{"id": "plain"}')`)
	d := next(t, take)
	if d.Exchange != "outbox.events" || d.RoutingKey != "order.web" || d.MessageId != "7" || d.Type != "created" ||
		d.ContentType != "application/json" || d.DeliveryMode != amqp.Persistent || d.Timestamp.Unix() != 1767323045 || d.Priority != 5 ||
		string(d.Body) != `{"total":   12.50, "b": 1, "a": "\u0041"}` {
		t.Errorf("the message is %+v", d)
	}
	position := header(d, "cdc_position")
	for name, want := range map[string]any{
		"aggregate_type": "order", "aggregate_id": "42", "timestamp_in_ms": int64(1767323045678), "traceparent": "00-trace",
		"tenant": "a", "n": int64(3), "region": "eu",
	} {
		if d.Headers[name] != want {
			t.Errorf("header %s is %v, want %v", name, d.Headers[name], want)
		}
	}
	if len(d.Headers) != 8 || len(position) != 25 {
		t.Errorf("the headers are %v", d.Headers)
	}
	eventually(t, func() string {
		return answers(t, relay, "/metrics", 200, "\noutbox_messages_skipped_total{reason=\"non_transactional\"} 2\n")
	})
	if n := strings.Count(relay.Log(), "not transactional"); n != 1 || !strings.Contains(relay.Log(), "pg_logical_emit_message(true, 'outbox'") {
		t.Errorf("%d warnings, want 1 with the fix: %s", n, relay.Log())
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	relay = b.start() // it repeats nothing
	b.exec(`SELECT pg_logical_emit_message(true, 'outbox', '{"id": "last", "aggregatetype": "order", "aggregateid": null, "type": null, "payload": null, "channel": "web"}')`)
	if d = next(t, take); d.MessageId != "last" || len(d.Body) != 0 {
		t.Errorf("after a restart the first message is %+v", d)
	}
	relay.Stop(t)
	b.released()
	b.ok("teardown", "--yes")
	if n := left(b.rig); n != "publications 0, schemas 0, slots 0" {
		t.Errorf("teardown leaves %s", n)
	}
}

// The SQL of docs/postgresql.md, with the configuration that stands above it: all of it arrives.
func TestDocumentedMessages(t *testing.T) {
	t.Parallel()
	b, take := withMessages(t, "[]")
	_, section, found := strings.Cut(document(t, "docs/postgresql.md"), "## An outbox without a table\n")
	config := blocks.FindStringSubmatch(section)
	if !found || config == nil || config[1] != "yaml" {
		t.Fatal("the page has no such section, or it has no configuration")
	}
	relay := runner.Start(t, b.binary, "admin: {listen: 127.0.0.1:0}\n"+strings.NewReplacer(
		"postgres://relay@localhost:5432/shop", b.db, "amqp://localhost:5672/", b.vhost,
		"source: {", "source: {slot: "+b.slot+", publication: "+b.slot+", ").Replace(config[2]))
	must(t, relay.WaitReady(await.Context(t)))
	for _, sql := range regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		b.exec(sql[1])
	}
	created, counted := next(t, take), next(t, take)
	if created.RoutingKey == "order.counted" { // they are in no order
		created, counted = counted, created
	}
	if d := created; d.RoutingKey != "order.created" || string(d.Body) != `{"total": 12.50}` || header(d, "aggregate_id") != "42" || header(d, "tenant") != "a" {
		t.Errorf("the first message is %+v", d)
	}
	if d := counted; d.RoutingKey != "order.counted" || len(d.Body) != 0 || d.Headers["aggregate_id"] != nil {
		t.Errorf("the second message is %+v", d)
	}
	relay.Stop(t)
}
