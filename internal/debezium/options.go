// The options: Debezium's own names and values, read strictly.

package debezium

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// The profiles.
const (
	Connect = "debezium-connect" // the connector in a Kafka Connect worker
	Server  = "debezium-server"  // Debezium Server
)

// Profiles are the profiles.
var Profiles = []string{Connect, Server}

// Options are the options of a profile, read. They are immutable.
type Options struct {
	profile string

	id, key, payload, timestamp, route string // columns; timestamp "": none
	version                            string // the column of the schema's version, "": none
	placed                             []placement
	lenient                            bool // a placed column may be missing
	topics                             *topics
	tombstones                         bool
	expand                             bool
	expander                           connect.Expander // when expand

	prefix string // topic.prefix
	modes  connect.Modes
	names  connect.NameMode // of the connector's schemas

	keys, values, headers Converter
	textKeys, textHeaders bool // Debezium Server hands them on as strings, not as bytes

	rabbit rabbitOptions
}

// rabbitOptions are the options of Debezium Server's sink for RabbitMQ.
type rabbitOptions struct {
	exchange   string // "": the topic
	routingKey string
	source     string // topic or key; "": static
	transient  bool   // deliveryMode 1
	null       []byte
}

const rabbitPrefix = "sink.rabbitmq."

// The options that name a column, and their defaults.
const (
	optionID        = "table.field.event.id"
	optionKey       = "table.field.event.key"
	optionPayload   = "table.field.event.payload"
	optionTimestamp = "table.field.event.timestamp"
	optionVersion   = "table.field.event.schema.version"
	optionPlacement = "table.fields.additional.placement"
	optionRoute     = "route.by.field"
	optionRegex     = "route.topic.regex"
	optionReplace   = "route.topic.replacement"
	optionTime      = "time.precision.mode"
)

// Fault is one thing that is wrong with an option.
type Fault struct {
	Option  string
	Words   string
	Unknown bool // there is no option of this name
}

// parsing is Parse on its way.
type parsing struct {
	given  map[string]string
	o      *Options
	faults []Fault
}

func (p *parsing) fault(option, words string) {
	p.faults = append(p.faults, Fault{Option: option, Words: words})
}

// value is the value of an option, or its default when it is not given.
func (p *parsing) value(option, otherwise string) string {
	if v, ok := p.given[option]; ok {
		return v
	}
	return otherwise
}

func parseTruth(value string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("is %q, want true or false", value)
}

// enveloped says whether the value is a struct of the payload and other columns.
func (o *Options) enveloped() bool {
	return slices.ContainsFunc(o.placed, func(f placement) bool { return f.where == inEnvelope })
}

// Profile is the profile's name.
func (o *Options) Profile() string { return o.profile }

// Columns are the columns of the outbox table that the options name.
type Columns struct {
	ID, Route, Key, Payload string
	Timestamp               string // "": none
	// the sinks of the profile drop the record's time, so nothing is wrong with any
	Untimed  bool
	Extra    []string // the others, each once
	Optional []string // those of Extra that a table may lack
}

// Columns names the columns that a record is made of.
func (o *Options) Columns() Columns {
	c := Columns{ID: o.id, Route: o.route, Key: o.key, Payload: o.payload, Timestamp: o.timestamp, Untimed: o.profile == Server}
	for _, f := range o.placed {
		c.Extra = append(c.Extra, f.column)
	}
	if o.lenient {
		c.Optional = slices.Clone(c.Extra)
	}
	if o.version != "" {
		c.Extra = append(c.Extra, o.version)
	}
	slices.Sort(c.Extra)
	c.Extra = slices.Compact(c.Extra)
	return c
}

// Parse reads the options of a profile, and reports everything that is wrong with them. There are
// no Options when there are faults.
func Parse(profile string, options map[string]string) (*Options, []Fault) {
	p := &parsing{given: options, o: &Options{profile: profile, rabbit: rabbitOptions{null: []byte("default")}}}
	if !slices.Contains(Profiles, profile) {
		return nil, []Fault{{Words: fmt.Sprintf("the profile is %q, want one of %s", profile, strings.Join(Profiles, ", "))}}
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch d := lookup(profile, name); {
		case d == nil:
			p.faults = append(p.faults, Fault{Option: name, Words: "unknown option", Unknown: true})
		case d.set != nil:
			if err := d.set(p.o, options[name]); err != nil {
				p.fault(name, err.Error())
			}
		}
	}
	p.columns()
	p.o.expander.Name = p.o.payload
	p.topics()
	p.envelope()
	p.converters()
	if p.o.rabbit.source == "key" && !p.o.textKeys {
		p.fault(rabbitPrefix+"routingKey.source", "is key, which wants format.key json or simplestring: others are bytes, and no routing key")
	}
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return p.o, nil
}

func (p *parsing) columns() {
	o := p.o
	for _, c := range []struct {
		option, otherwise string
		at                *string
	}{
		{optionID, "id", &o.id}, {optionKey, "aggregateid", &o.key}, {optionPayload, "payload", &o.payload}, {optionRoute, "aggregatetype", &o.route},
	} {
		if *c.at = p.value(c.option, c.otherwise); *c.at == "" {
			p.fault(c.option, "names no column")
		}
	}
	for option, at := range map[string]*string{optionTimestamp: &o.timestamp, optionVersion: &o.version} {
		if v, given := p.given[option]; given && v == "" {
			p.fault(option, "names no column; leave it out for none")
		} else {
			*at = v
		}
	}
	if o.timestamp != "" && (o.modes.Time == "connect" || o.modes.Time == "isostring") {
		p.fault(optionTime, fmt.Sprintf("%s cannot stand beside %s: the Event Router takes no timestamp of that form", o.modes.Time, optionTimestamp))
	}
	placed, err := parsePlacement(p.given[optionPlacement])
	if _, given := p.given[optionPlacement]; given && err != nil {
		p.fault(optionPlacement, err.Error())
	}
	o.placed = placed
}

func (p *parsing) topics() {
	topics, regex, replace := newTopics(p.value(optionRegex, `(?<routedByValue>.*)`), p.value(optionReplace, "outbox.event.${routedByValue}"))
	if regex != nil {
		p.fault(optionRegex, regex.Error())
	}
	if replace != nil {
		p.fault(optionReplace, replace.Error())
	}
	p.o.topics = topics
}

// envelope checks what only matters to values that are a struct.
func (p *parsing) envelope() {
	enveloped := p.o.enveloped()
	if p.o.version != "" && !enveloped {
		p.o.version = "" // it has no effect then, and the column need not exist
	}
	if enveloped && p.value("topic.prefix", "") == "" {
		p.fault(optionPlacement, "puts columns into an envelope, whose schema is named after topic.prefix: give the connector's topic.prefix")
	}
}

// definition is one option. Without set its value is read elsewhere, or has no effect on a record.
type definition struct {
	name string
	only string // the one profile that has it, "": both
	set  func(o *Options, value string) error
}

// definitions are all options but those of converters, whose names are made of parts.
var definitions = []definition{
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
	{name: "table.field.additional.missing", set: oneOf(func(o *Options, v string) { o.lenient = v == "ignore" }, "error", "ignore")},
	// its name before 3.6
	{name: "table.fields.additional.error.on.missing", set: truth(func(o *Options, v bool) { o.lenient = !v })},
	{name: "table.expand.json.payload", set: truth(func(o *Options, v bool) { o.expand = v })},
	{name: "table.json.payload.null.behavior", set: oneOf(func(o *Options, v string) { o.expander.NullsAsBytes = v == "optional_bytes" }, "ignore", "optional_bytes")},
	{name: "table.json.payload.empty.array.behavior", set: oneOf(func(o *Options, v string) { o.expander.EmptyAsString = v == "optional_string" }, "ignore", "optional_string")},
	// an UPDATE is no event here
	{name: "table.op.invalid.behavior", set: oneOf(func(*Options, string) {}, "warn", "error", "fatal")},
	{name: "route.tombstone.on.empty.payload", set: truth(func(o *Options, v bool) { o.tombstones = v })},
	// Without OpenTelemetry, which Debezium does not ship, these have no effect there;
	// tracing here is another section's.
	{name: "tracing.span.context.field"},
	{name: "tracing.operation.name"},
	{name: "tracing.with.context.field.only"},
	{name: "predicate", set: refused("chooses records by their topics; the tables are chosen by source.tables here")},
	{name: "negate", set: refused("belongs to predicate, which is not taken here")},

	{name: "topic.prefix", set: func(o *Options, v string) error { o.prefix = v; return nil }},
	{name: "binary.handling.mode", set: oneOf(func(o *Options, v string) { o.modes.Binary = v }, connect.BinaryModes...)},
	{name: optionTime, set: oneOf(func(o *Options, v string) { o.modes.Time = v }, connect.TimeModes...)},
	{name: "decimal.handling.mode", set: oneOf(func(o *Options, v string) { o.modes.Decimal = v }, connect.DecimalModes...)},
	{name: "field.name.adjustment.mode", set: oneOf(func(o *Options, v string) { o.expander.Names = connect.NameMode(v) }, connect.NameModes...)},
	{name: "schema.name.adjustment.mode", set: oneOf(func(o *Options, v string) { o.names = connect.NameMode(v) }, connect.NameModes...)},

	{name: rabbitPrefix + "exchange", only: Server, set: func(o *Options, v string) error { o.rabbit.exchange = v; return nil }},
	{name: rabbitPrefix + "routingKey", only: Server, set: func(o *Options, v string) error { o.rabbit.routingKey = v; return nil }},
	{name: rabbitPrefix + "routingKey.source", only: Server, set: oneOf(func(o *Options, v string) { o.rabbit.source = v }, "static", "topic", "key")},
	{name: rabbitPrefix + "deliveryMode", only: Server, set: oneOf(func(o *Options, v string) { o.rabbit.transient = v == "1" }, "2", "1")},
	{name: rabbitPrefix + "null.value", only: Server, set: func(o *Options, v string) error { o.rabbit.null = []byte(v); return nil }},
	{name: rabbitPrefix + "autoCreateRoutingKey", only: Server, set: func(_ *Options, v string) error {
		yes, err := parseTruth(v)
		if yes {
			err = errors.New("is not taken: it declares a queue of the routing key's name; declare it at the broker")
		}
		return err
	}},
	// of the queue that is not declared
	{name: rabbitPrefix + "routingKeyDurable", only: Server, set: truth(func(*Options, bool) {})},
	// Debezium warns, and does nothing
	{name: rabbitPrefix + "routingKeyFromTopicName", only: Server, set: truth(func(*Options, bool) {})},
	{name: rabbitPrefix + "ackTimeout", only: Server, set: refused("is delivery.confirm_timeout here")},
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

// truth makes the reader of a boolean option. It reads as Java's Boolean.parseBoolean does, but
// refuses a value that is neither true nor false.
func truth(set func(o *Options, v bool)) func(*Options, string) error {
	return func(o *Options, value string) error {
		v, err := parseTruth(value)
		if err == nil {
			set(o, v)
		}
		return err
	}
}

// oneOf makes the reader of an option with a few values, in upper or lower case, as Debezium reads
// it. The first one is the default, and "" here.
func oneOf(set func(o *Options, v string), values ...string) func(*Options, string) error {
	return func(o *Options, value string) error {
		v := strings.ToLower(strings.TrimSpace(value))
		if !slices.Contains(values, v) {
			return fmt.Errorf("is %q, want one of %s", value, strings.Join(values, ", "))
		}
		if v == values[0] {
			v = ""
		}
		set(o, v)
		return nil
	}
}

// refused is an option of Debezium's that no value is taken of.
func refused(why string) func(*Options, string) error {
	return func(*Options, string) error { return errors.New("is not taken: it " + why) }
}

// placement is one entry of the list.
type placement struct {
	column string
	where  placed
	alias  string // of a header or member; the column's name when there is none
}

type placed uint8

const (
	inHeader placed = iota
	inEnvelope
	asPartition
)

var placements = map[string]placed{"header": inHeader, "envelope": inEnvelope, "partition": asPartition}

// envelopePayload is the name of the payload in an envelope.
const envelopePayload = "payload"

// parsePlacement reads column:placement[:alias], separated by commas, with the white space that
// Debezium allows.
func parsePlacement(list string) ([]placement, error) {
	var found []placement
	members := map[string]bool{envelopePayload: true}
	for entry := range strings.SplitSeq(strings.TrimRight(list, ","), ",") {
		parts := strings.Split(strings.TrimRight(entry, ":"), ":")
		if len(parts) != 2 && len(parts) != 3 {
			return nil, fmt.Errorf("has %q, want column:placement or column:placement:alias, separated by commas", entry)
		}
		f := placement{column: strings.TrimSpace(parts[0])}
		f.alias = f.column
		if len(parts) == 3 {
			f.alias = strings.TrimSpace(parts[2])
		}
		where, known := placements[strings.ToLower(strings.TrimSpace(parts[1]))]
		switch {
		case !known:
			return nil, fmt.Errorf("has the placement %q, want header, envelope or partition", strings.TrimSpace(parts[1]))
		case f.column == "" || f.alias == "":
			return nil, errors.New("has an entry without a name of a column or alias")
		}
		if f.where = where; where == inEnvelope {
			if members[f.alias] {
				return nil, fmt.Errorf("has %q in the envelope twice", f.alias)
			}
			members[f.alias] = true
		}
		found = append(found, f)
	}
	return found, nil
}
