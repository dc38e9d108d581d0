// The section sink.compat: records as Debezium makes them. Its options replace the section
// outbox and the sink's templates.

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Compat is a profile and its options.
type Compat struct {
	Profile string   // "": records are the relay's own
	Options []Option // as written, in the order of the file

	read *debezium.Options
}

// Option is one option of Debezium, under Debezium's name.
type Option struct {
	Name, Value string
	where       document.Place
}

// Records are the options, read; nil when there is no profile.
func (c *Compat) Records() *debezium.Options { return c.read }

// compatOptions reads names with single values. The profile decides which names exist.
func compatOptions(path string) field {
	return field{
		path: path,
		kind: document.Mapping,
		form: jsonSchema{"type": "object", "additionalProperties": orNothing(anyText())},
		set: func(l *loader, path string, n *document.Node) {
			if n.Kind != document.Mapping {
				l.fault(n.Where, path, "wants a mapping of Debezium's options, has "+n.Kind.String())
				return
			}
			for _, e := range n.Entries {
				if e.Value.Kind == document.Null {
					continue
				}
				if value, ok := l.option(join(path, e.Name), e.Value); ok {
					l.cfg.Sink.Compat.Options = append(l.cfg.Sink.Compat.Options, Option{e.Name, value, e.Value.Where})
				}
			}
		},
		show: func(c *Config) string { return showOptions(c.Sink.Compat.Options) },
	}
}

// option reads a single value. ${...} is a reference everywhere in the file, and Debezium has
// references of its own. If one fails here, the fault explains how to write one for Debezium.
func (l *loader) option(path string, n *document.Node) (string, bool) {
	faults := len(l.faults)
	value, ok := l.scalar(path, n)
	if !ok && len(l.faults) > faults && n.Kind == document.Scalar && strings.Contains(n.Text, "${") {
		l.faults[faults].What += "; a ${...} that is for Debezium is written $${...}"
	}
	return value, ok
}

func showOptions(options []Option) string {
	shown := make([]string, len(options))
	for i, o := range options {
		shown[i] = quote(o.Name) + ": " + quote(o.Value)
	}
	return "{" + strings.Join(shown, ", ") + "}"
}

// compat reads the options of the profile and adapts the rest of the configuration: the options
// name the columns, and the order is that of the commits, because a consumer of Debezium sees that
// order.
func (l *loader) compat() {
	const section = "sink.compat"
	c := &l.cfg.Sink.Compat
	if c.Profile == "" {
		if len(c.Options) > 0 && !l.isFaulty(section+".profile") {
			l.faultAt(section+".options", errors.New("has no effect without sink.compat.profile: "+strings.Join(debezium.Profiles, " or ")))
		}
		return
	}
	given := map[string]string{}
	for _, o := range c.Options {
		given[o.Name] = o.Value
	}
	var faults []debezium.Fault
	c.read, faults = debezium.Parse(c.Profile, given)
	for _, f := range faults {
		l.optionFault(section+".options", f)
	}
	l.replaced()
	if c.read == nil {
		return
	}
	columns := c.read.Columns()
	named := func(name string) Column { return Column{Names: []string{name}, Written: true} }
	l.cfg.Outbox = Outbox{ID: named(columns.ID), Aggregate: named(columns.Route), Key: named(columns.Key), Payload: named(columns.Payload)}
	if columns.Timestamp != "" {
		l.cfg.Outbox.Timestamp = named(columns.Timestamp)
	}
	if _, written := l.written["delivery.ordering"]; !written {
		l.cfg.Delivery.Ordering = OrderingCommit
	}
	topic, exchange, routingKey := c.read.Templates()
	l.cfg.Sink.Kafka.Topic = destinationOf(topic)
	l.cfg.Sink.RabbitMQ.Exchange, l.cfg.Sink.RabbitMQ.RoutingKey = destinationOf(exchange), destinationOf(routingKey)
}

// destinationOf makes a template of what the profile makes. A text that cannot be a template,
// because it has a brace, becomes one that fits any name.
func destinationOf(text string) sink.Template {
	t, err := sink.ParseTemplate(text)
	if err != nil {
		return mustTemplate("{aggregate}")
	}
	return t
}

// optionFault reports a fault at the place of the option.
func (l *loader) optionFault(section string, f debezium.Fault) {
	options := l.cfg.Sink.Compat.Options
	where := l.placeOf(section)
	if where == (document.Place{}) {
		where = l.placeOf("sink.compat.profile")
	}
	if i := slices.IndexFunc(options, func(o Option) bool { return o.Name == f.Option }); i >= 0 {
		where = options[i].where
	}
	text := f.Words
	if f.Unknown {
		if near := nearest(f.Option, debezium.Known(l.cfg.Sink.Compat.Profile)); near != "" {
			text += ", the nearest known one is " + near
		} else {
			text += " of " + l.cfg.Sink.Compat.Profile + "; docs/import.md lists them"
		}
	}
	l.fault(where, join(section, f.Option), text)
}

// replacedByOptions are the keys that options of the profile replace.
var replacedByOptions = map[string]string{
	"outbox.id": "table.field.event.id", "outbox.aggregate": "route.by.field", "outbox.key": "table.field.event.key",
	"outbox.payload": "table.field.event.payload", "outbox.timestamp": "table.field.event.timestamp",
	"outbox.type": "table.fields.additional.placement", "outbox.headers": "table.fields.additional.placement",
	"outbox.headers_column": "table.fields.additional.placement", "outbox.traceparent": "table.fields.additional.placement",
	"sink.kafka.topic": "route.topic.replacement", "sink.rabbitmq.exchange": "sink.rabbitmq.exchange",
	"sink.rabbitmq.routing_key": "sink.rabbitmq.routingKey and sink.rabbitmq.routingKey.source",
	"sink.rabbitmq.properties":  "", "sink.rabbitmq.declare": "", "source.message_prefix": "",
}

// replaced refuses the keys that have no effect with a profile.
func (l *loader) replaced() {
	for key, option := range replacedByOptions {
		if _, written := l.written[key]; !written {
			continue
		}
		text := "has no effect with sink.compat; leave it out"
		switch {
		case key == "source.message_prefix":
			text = "cannot be used with sink.compat: the Event Router makes no records of messages"
		case option != "":
			text = fmt.Sprintf("has no effect with sink.compat; write sink.compat.options: {%s: ...}", option)
		}
		l.faultAt(key, errors.New(text))
	}
	if tables, ok := l.written["source.tables"]; ok && tables.Kind == document.List {
		for i, item := range tables.Items {
			for _, e := range item.Entries {
				if e.Name != "name" && e.Value.Kind != document.Null {
					l.fault(e.Where, fmt.Sprintf("source.tables[%d].%s", i, e.Name), "has no effect with sink.compat, whose options name the columns of all tables")
				}
			}
		}
	}
}

// validateCompat compares the profile with the sink.
func (l *loader) validateCompat(named map[string]bool) {
	if l.cfg.Sink.Compat.Profile == debezium.Connect && named["sink.rabbitmq"] {
		l.faultAt("sink.compat.profile", fmt.Errorf("is %s, which has no RabbitMQ; want %s", debezium.Connect, debezium.Server))
	}
	if l.cfg.Sink.Compat.read == nil || !named["sink.kafka"] {
		return
	}
	if err := checkTopic(l.cfg.Sink.Kafka.Topic); err != nil {
		l.optionFault("sink.compat.options", debezium.Fault{Option: "route.topic.replacement", Words: "makes the topic, which " + err.Error()})
	}
}

// optionsFromVariable reads name=value,name=value. Values may be lists themselves, so a piece
// without = continues the value before it.
func optionsFromVariable(variable, text string) *document.Node {
	var pieces []string
	for _, piece := range document.SplitList(text) {
		if last := len(pieces) - 1; last >= 0 && !strings.Contains(piece, "=") {
			pieces[last] += "," + piece
			continue
		}
		pieces = append(pieces, piece)
	}
	at := document.Place{Variable: variable}
	out := &document.Node{Kind: document.Mapping, Where: at}
	for _, piece := range pieces {
		name, value, _ := strings.Cut(piece, "=")
		out.Entries = append(out.Entries, document.Entry{
			Name: strings.TrimSpace(name), Where: at, Value: &document.Node{Kind: document.Scalar, Where: at, Text: strings.TrimSpace(value)},
		})
	}
	return out
}
