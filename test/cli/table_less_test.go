// This file is about an outbox without a table: events that are logical messages.
package cli

import (
	"fmt"
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

// The SQL of docs/outbox.md, with the configuration that stands above it: all of it arrives.
func TestDocumentedMessages(t *testing.T) {
	t.Parallel()
	b, take := withMessages(t, "[]")
	_, section, found := strings.Cut(document(t, "docs/outbox.md"), "\n## Without a table\n")
	config := blocks.FindStringSubmatch(section)
	if !found || config == nil || config[1] != "yaml" {
		t.Fatal("the page has no such section, or it has no configuration")
	}
	relay := runner.Start(t, b.binary, "admin: {listen: 127.0.0.1:0}\n"+strings.NewReplacer(
		"postgres://relay@localhost:5432/shop", b.db, "amqp://localhost:5672/", b.vhost,
		"source: {", "source: {slot: "+b.slot+", publication: "+b.slot+", ").Replace(config[2]))
	must(t, relay.WaitReady(await.Context(t)))
	for _, sql := range sqlOf(t, "Without a table") {
		b.exec(sql)
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
