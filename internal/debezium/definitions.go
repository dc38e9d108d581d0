// The options that there are: what each takes, and what is not taken, with the reason.

package debezium

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/columns"
)

// definition is one option. Without set its value is read elsewhere, or has no effect on a record.
type definition struct {
	name string
	only string // the one profile that has it, "": both
	set  func(o *Options, value string) error
}

// definitions are all options but those of converters, whose names are made of parts.
var definitions = slices.Concat([]definition{
	{name: optionID},
	{name: optionKey},
	{name: optionPayload},
	{name: optionTimestamp},
	{name: optionVersion},
	{name: optionPlacement},
	{name: optionRoute},
	{name: optionRegex},
	{name: optionReplace},
	{name: "table.field.event.type"}, // Debezium reads it nowhere
	{name: "table.field.additional.missing", set: oneOf(func(o *Options, i int) { o.lenient = i == 1 }, "error", "ignore")},
	// its name before 3.6
	{name: "table.fields.additional.error.on.missing", set: truth(func(o *Options, v bool) { o.lenient = !v })},
	{name: "table.expand.json.payload", set: truth(func(o *Options, v bool) { o.expand = v })},
	{name: "table.json.payload.null.behavior", set: oneOf(func(o *Options, i int) { o.expander.NullsAsBytes = i == 1 }, "ignore", "optional_bytes")},
	{name: "table.json.payload.empty.array.behavior", set: oneOf(func(o *Options, i int) { o.expander.EmptyAsString = i == 1 }, "ignore", "optional_string")},
	// an UPDATE is no event here
	{name: "table.op.invalid.behavior", set: oneOf(func(*Options, int) {}, "warn", "error", "fatal")},
	{name: "route.tombstone.on.empty.payload", set: truth(func(o *Options, v bool) { o.tombstones = v })},
	// Without OpenTelemetry, which Debezium does not ship, these have no effect there;
	// tracing here is another section's.
	{name: "tracing.span.context.field"},
	{name: "tracing.operation.name"},
	{name: "tracing.with.context.field.only"},
	{name: "predicate", set: refused("chooses records by their topics; the tables are chosen by source.tables here")},
	{name: "negate", set: refused("belongs to predicate, which is not taken here")},

	{name: "topic.prefix", set: func(o *Options, v string) error { o.prefix = v; return nil }},
	{name: "binary.handling.mode", set: oneOf(func(o *Options, i int) { o.modes.Binary = columns.BinaryMode(i) }, columns.BinaryModes...)},
	{name: optionTime, set: oneOf(func(o *Options, i int) { o.modes.Time = columns.TimeMode(i) }, columns.TimeModes...)},
	{name: "decimal.handling.mode", set: oneOf(func(o *Options, i int) { o.modes.Decimal = columns.DecimalMode(i) }, columns.DecimalModes...)},
	{name: "field.name.adjustment.mode", set: oneOf(func(o *Options, i int) { o.expander.Names = connect.NameMode(i) }, connect.NameModes...)},
	{name: "schema.name.adjustment.mode", set: oneOf(func(o *Options, i int) { o.names = connect.NameMode(i) }, connect.NameModes...)},
}, rabbitDefinitions)

var rabbitDefinitions = []definition{
	{name: rabbitPrefix + "exchange", only: Server, set: func(o *Options, v string) error { o.rabbit.exchange = v; return nil }},
	{name: rabbitPrefix + "routingKey", only: Server, set: func(o *Options, v string) error { o.rabbit.routingKey = v; return nil }},
	{name: rabbitPrefix + "routingKey.source", only: Server, set: oneOf(func(o *Options, i int) { o.rabbit.source = routingKeySource(i) }, "static", "topic", "key")},
	{name: rabbitPrefix + "deliveryMode", only: Server, set: deliveryMode},
	{name: rabbitPrefix + "null.value", only: Server, set: func(o *Options, v string) error { o.rabbit.null = []byte(v); return nil }},
	{name: rabbitPrefix + "autoCreateRoutingKey", only: Server, set: truthThatIs(false, "declares a queue of the routing key's name; declare it at the broker")},
	// of the queue that is not declared
	{name: rabbitPrefix + "routingKeyDurable", only: Server, set: truth(func(*Options, bool) {})},
	// Debezium warns, and does nothing
	{name: rabbitPrefix + "routingKeyFromTopicName", only: Server, set: truth(func(*Options, bool) {})},
	{name: rabbitPrefix + "ackTimeout", only: Server, set: refused("is delivery.confirm_timeout here")},
}

func deliveryMode(o *Options, value string) error {
	if value != "1" && value != "2" {
		return fmt.Errorf("is %q, want 1 (transient) or 2 (persistent)", value)
	}
	o.rabbit.transient = value == "1"
	return nil
}

// truthThatIs takes a boolean of one value.
func truthThatIs(want bool, otherwise string) func(*Options, string) error {
	return func(_ *Options, value string) error {
		v, err := parseTruth(value)
		if err == nil && v != want {
			err = errors.New("is not taken: it " + otherwise)
		}
		return err
	}
}

// lookup finds the option of a name; nil when there is none.
func lookup(profile, name string) *definition {
	for i := range definitions {
		if d := &definitions[i]; d.name == name && (d.only == "" || d.only == profile) {
			return d
		}
	}
	if slices.Contains(converterOptions(profile), name) {
		return &definition{name: name}
	}
	return nil
}

// Known are the names of all options of a profile.
func Known(profile string) []string {
	var names []string
	for _, d := range definitions {
		if d.only == "" || d.only == profile {
			names = append(names, d.name)
		}
	}
	return append(names, converterOptions(profile)...)
}

// truth takes a boolean as Java's Boolean.parseBoolean does, but refuses what is neither true nor
// false.
func truth(set func(o *Options, v bool)) func(*Options, string) error {
	return func(o *Options, value string) error {
		v, err := parseTruth(value)
		if err == nil {
			set(o, v)
		}
		return err
	}
}

// oneOf takes one of some values, in any case, as Debezium does.
func oneOf(set func(o *Options, i int), values ...string) func(*Options, string) error {
	return func(o *Options, value string) error {
		i := slices.Index(values, strings.ToLower(strings.TrimSpace(value)))
		if i < 0 {
			return fmt.Errorf("is %q, want one of %s", value, strings.Join(values, ", "))
		}
		set(o, i)
		return nil
	}
}

// refused is an option of Debezium's that no value is taken of.
func refused(why string) func(*Options, string) error {
	return func(*Options, string) error { return errors.New("is not taken: it " + why) }
}
