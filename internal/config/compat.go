// The section sink.compat: records as Debezium makes them. Its options replace the section
// outbox and the sink's templates.

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
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
	where       setting.Place
}

// Records are the options, read; nil when there is no profile.
func (c *Compat) Records() *debezium.Options { return c.read }

// compat reads the options of the profile and adapts the rest of the configuration: the options
// name the columns, and the order is that of the commits, because a consumer of Debezium sees that
// order.
func (l *loader) compat() {
	const section = "sink.compat"
	c := &l.cfg.Sink.Compat
	if c.Profile == "" {
		if len(c.Options) > 0 && !l.IsFaulty(section+".profile") {
			l.FaultAt(section+".options", errors.New("has no effect without sink.compat.profile: "+strings.Join(debezium.Profiles, " or ")))
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
	l.cfg.Outbox = Outbox{ID: named(columns.ID), Aggregate: named(columns.Route), Key: named(columns.Key), Payload: named(columns.Payload), Transaction: columnNamed("tx")}
	if columns.Timestamp != "" {
		l.cfg.Outbox.Timestamp = named(columns.Timestamp)
	}
	if _, written := l.Given["delivery.ordering"]; !written {
		l.cfg.Delivery.Ordering = OrderingCommit
	}
	topic, exchange, routingKey := c.read.Templates()
	made := map[string]string{"topic": topic, "exchange": exchange, "routing_key": routingKey}
	for _, section := range l.sections {
		for _, t := range section.Templates() {
			text, known := made[t.Key]
			if !known {
				text = topic
			}
			*t.Template = destinationOf(text)
		}
	}
}

// destinationOf makes a template of what the profile makes. A text that cannot be a template,
// because it has a brace, becomes one that fits any name.
func destinationOf(text string) sink.Template {
	t, err := sink.ParseTemplate(text)
	if err != nil {
		return sink.MustTemplate("{aggregate}")
	}
	return t
}

// optionFault reports a fault at the place of the option.
func (l *loader) optionFault(section string, f debezium.Fault) {
	options := l.cfg.Sink.Compat.Options
	where := l.PlaceOf(section)
	if where == (setting.Place{}) {
		where = l.PlaceOf("sink.compat.profile")
	}
	if i := slices.IndexFunc(options, func(o Option) bool { return o.Name == f.Option }); i >= 0 {
		where = options[i].where
	}
	text := f.Words
	if f.Unknown {
		if near := setting.Nearest(f.Option, debezium.Known(l.cfg.Sink.Compat.Profile)); near != "" {
			text += ", the nearest known one is " + near
		} else {
			text += " of " + l.cfg.Sink.Compat.Profile + "; docs/reference.md#debezium-properties lists them"
		}
	}
	l.Fault(where, join(section, f.Option), text)
}

// replacedByOptions are the keys of the section outbox, and the parts of a route, that options of
// the profile replace.
var replacedByOptions = map[string]string{
	"outbox.id": "table.field.event.id", "outbox.aggregate": "route.by.field", "outbox.key": "table.field.event.key",
	"outbox.payload": "table.field.event.payload", "outbox.timestamp": "table.field.event.timestamp",
	"outbox.type": "table.fields.additional.placement", "outbox.headers": "table.fields.additional.placement",
	"outbox.headers_column": "table.fields.additional.placement", "outbox.traceparent": "table.fields.additional.placement",
	"topic": "route.topic.replacement", "exchange": "sink.rabbitmq.exchange",
	"routing_key": "sink.rabbitmq.routingKey and sink.rabbitmq.routingKey.source",
}

// isReplaced reports whether the key has no effect because there is a profile.
func isReplaced(k *setting.Key) bool {
	return k.Replaced || k.Name == "source.message_prefix" || strings.HasPrefix(k.Name, "outbox.")
}

// replaced refuses the keys that have no effect with a profile.
func (l *loader) replaced() {
	for _, k := range l.fields() {
		key := k.Name
		if !isReplaced(&k) || !l.IsGiven(key) {
			continue
		}
		_, part, _ := cutLast(key)
		option := replacedByOptions[key]
		if k.Replaced {
			option = replacedByOptions[part]
		}
		text := "has no effect with sink.compat; leave it out"
		switch {
		case key == "source.message_prefix":
			text = "cannot be used with sink.compat: the Event Router makes no records of messages"
		case option != "":
			text = fmt.Sprintf("has no effect with sink.compat; write sink.compat.options: {%s: ...}", option)
		}
		l.FaultAt(key, errors.New(text))
	}
	if tables, ok := l.Given["source.tables"]; ok && tables.Kind == setting.List {
		for i, item := range tables.Items {
			for _, e := range item.Entries {
				if e.Name != "name" && e.Value.Kind != setting.Null {
					l.Fault(e.Where, fmt.Sprintf("source.tables[%d].%s", i, e.Name), "has no effect with sink.compat, whose options name the columns of all tables")
				}
			}
		}
	}
}

// validateCompat compares the profile with the sink. The connector's records have a topic: a sink
// that wants something else can only be of the server.
func (l *loader) validateCompat(named []*sink.Driver) {
	for _, d := range named {
		if l.cfg.Sink.Compat.Profile == debezium.Connect && len(d.Route) > 0 && d.Route[0].Key != "topic" {
			l.FaultAt("sink.compat.profile", fmt.Errorf("is %s, which has no %s; want %s", debezium.Connect, d.Broker, debezium.Server))
		}
		if l.cfg.Sink.Compat.read == nil {
			continue
		}
		for _, t := range l.sections[d.Name].Templates() {
			if t.Check == nil {
				continue
			}
			if err := t.Check(*t.Template); err != nil {
				l.optionFault("sink.compat.options", debezium.Fault{Option: replacedByOptions[t.Key], Words: "makes the " + t.Key + ", which " + err.Error()})
			}
		}
	}
}

// compatOptions reads names with single values. The profile decides which names exist.
func (l *loader) compatOptions(path string) setting.Key {
	c := &l.cfg.Sink.Compat
	return setting.Key{
		Name: path, Kind: setting.Mapping, FromVariable: optionsFromVariable,
		Form: setting.Form{"type": "object", "additionalProperties": setting.OrNothing(setting.AnyText())},
		Set: func(_ *setting.Reader, path string, n *setting.Node) {
			if n.Kind != setting.Mapping {
				l.Fault(n.Where, path, "wants a mapping of Debezium's options, has "+n.Kind.String())
				return
			}
			for _, e := range n.Entries {
				if e.Value.Kind == setting.Null {
					continue
				}
				if value, ok := l.option(join(path, e.Name), e.Value); ok {
					c.Options = append(c.Options, Option{e.Name, value, e.Value.Where})
				}
			}
		},
		Show: func() string { return showOptions(c.Options) },
	}
}

// option reads a single value. ${...} is a reference everywhere in the file, and Debezium has
// references of its own. If one fails here, the fault explains how to write one for Debezium.
func (l *loader) option(path string, n *setting.Node) (string, bool) {
	faults := len(l.Faults)
	value, ok := l.Scalar(path, n)
	if !ok && len(l.Faults) > faults && n.Kind == setting.Scalar && strings.Contains(n.Text, "${") {
		l.Faults[faults].What += "; a ${...} that is for Debezium is written $${...}"
	}
	return value, ok
}

func showOptions(options []Option) string {
	shown := make([]string, len(options))
	for i, o := range options {
		shown[i] = setting.Quote(o.Name) + ": " + setting.Quote(o.Value)
	}
	return "{" + strings.Join(shown, ", ") + "}"
}

// optionsFromVariable reads name=value,name=value. Values may be lists themselves, so a piece
// without = continues the value before it.
func optionsFromVariable(variable, text string) *setting.Node {
	var pieces []string
	for _, piece := range setting.SplitList(text) {
		if last := len(pieces) - 1; last >= 0 && !strings.Contains(piece, "=") {
			pieces[last] += "," + piece
			continue
		}
		pieces = append(pieces, piece)
	}
	at := setting.Place{Variable: variable}
	out := &setting.Node{Kind: setting.Mapping, Where: at}
	for _, piece := range pieces {
		name, value, _ := strings.Cut(piece, "=")
		out.Entries = append(out.Entries, setting.Entry{
			Name: strings.TrimSpace(name), Where: at, Value: &setting.Node{Kind: setting.Scalar, Where: at, Text: strings.TrimSpace(value)},
		})
	}
	return out
}
