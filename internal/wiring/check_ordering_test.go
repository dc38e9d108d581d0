package wiring

import (
	"fmt"
	"strings"
	"testing"
)

// A key's events are split by what differs among them, and not by what their key consists of.
func TestTemplatesThatSplitAKey(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		sink, ordering string
		level          string
		fix            string
	}{
		{`{rabbitmq: {exchange: events}}`, "key", "ok", ""},
		{`{rabbitmq: {exchange: "e.{aggregate}.{key}"}}`, "key", "ok", ""},
		{`{rabbitmq: {exchange: events, routing_key: "{type}"}}`, "key", "ok", ""},
		{`{rabbitmq: {exchange: "e.{type}"}}`, "key", "warn", `sink.rabbitmq.exchange: "e";`},
		{`{rabbitmq: {exchange: "e.{type}"}}`, "pipelined", "warn", `sink.rabbitmq.exchange: "e";`},
		{`{rabbitmq: {exchange: "e.{type}"}}`, "none", "ok", ""},
		{`{rabbitmq: {exchange: "e.{aggregate}"}}`, "commit", "warn", `sink.rabbitmq.exchange: "e";`},
		{`{kafka: {topic: "outbox.event.{aggregate}"}}`, "key", "ok", ""},
		{`{kafka: {topic: "{aggregate}.{type}.events"}}`, "key", "warn", `sink.kafka.topic: "{aggregate}.events";`},
		{`{kafka: {topic: "{id}"}}`, "key", "warn", `sink.kafka.topic: "outbox.events";`},
		{`{kafka: {topic: "t.{column:tenant}"}}`, "key", "warn", `sink.kafka.topic: "t";`},
	} {
		conf := configured(t, c.sink, "")
		conf.Delivery.Ordering = c.ordering
		found := checkOrdering(conf)
		if len(found) != 1 || found[0].Name != "ordering" || found[0].Level != c.level || !strings.HasPrefix(found[0].Fix, c.fix) || found[0].Detail == "" {
			t.Errorf("%s with ordering %s: %+v", c.sink, c.ordering, found)
		}
	}
	if found := checkOrdering(configured(t, `{stdout: {}}`, "")); len(found) != 0 {
		t.Errorf("stdout has no template: %+v", found)
	}
}

// With a profile the topics are Debezium's, by routes that the relay does not choose: there is
// nothing to fix, and the template's keys are refused there. A constant topic is not the only one:
// values that the expression does not match have their own.
func TestOrderingBehindDebezium(t *testing.T) {
	t.Chdir(t.TempDir())
	const constant = `"route.topic.replacement": all, "route.topic.regex": "order"`
	for _, c := range []struct{ sink, profile, options, ordering, detail string }{
		{"kafka", "debezium-connect", "", "commit", "as behind Debezium: events keep the order of their commits within each partition,"},
		{"kafka", "debezium-connect", constant, "commit", "as behind Debezium: events keep the order of their commits within each partition,"},
		{"kafka", "debezium-server", "", "key", "the events of a key keep their order within each partition,"},
		{"rabbitmq", "debezium-server", "", "commit", "as behind Debezium: events keep the order of their commits within each exchange,"},
		{"rabbitmq", "debezium-server", "", "none", "none is kept"},
	} {
		conf := configured(t, fmt.Sprintf(`{%s: {}, compat: {profile: %s, options: {"topic.prefix": shop, %s}}}`, c.sink, c.profile, c.options), "")
		conf.Delivery.Ordering = c.ordering
		found := checkOrdering(conf)
		if len(found) != 1 || found[0].Level != "ok" || found[0].Fix != "" || !strings.HasPrefix(found[0].Detail, c.detail) {
			t.Errorf("%+v: %+v", c, found)
		}
	}
}
