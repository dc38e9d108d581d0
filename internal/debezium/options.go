// The options: Debezium's own names and values, read strictly.

package debezium

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/columns"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/expand"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
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
	expander                           expand.Expander // when expand

	prefix string // topic.prefix
	modes  columns.Modes
	names  connect.NameMode // of the connector's schemas

	keys, values, headers converter.Converter
	textKeys, textHeaders bool // Debezium Server hands them on as strings, not as bytes

	rabbit rabbitOptions
}

// Fault is one thing that is wrong with an option.
type Fault struct {
	Option  string
	Words   string
	Unknown bool // there is no option of this name
}

// Parse reads the options of a profile, and reports everything that is wrong with them. There are no Options when there are faults.
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
	if p.o.rabbit.source == fromKey && !p.o.textKeys {
		p.fault(rabbitPrefix+"routingKey.source", "is key, which wants format.key json or simplestring: others are bytes, and no routing key")
	}
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return p.o, nil
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

// value is that of an option, or what it is when it is not given.
func (p *parsing) value(option, otherwise string) string {
	if v, ok := p.given[option]; ok {
		return v
	}
	return otherwise
}

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
	if o.timestamp != "" && (o.modes.Time == columns.TimeConnect || o.modes.Time == columns.TimeISOString) {
		p.fault(optionTime, fmt.Sprintf("%s cannot stand beside %s: the Event Router takes no timestamp of that form", columns.TimeModes[o.modes.Time], optionTimestamp))
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

// enveloped says whether the value is a struct of the payload and other columns.
func (o *Options) enveloped() bool {
	return slices.ContainsFunc(o.placed, func(f placement) bool { return f.where == inEnvelope })
}

// NamesPartition says whether a row may name its partition.
func (o *Options) NamesPartition() bool {
	return o.profile == Connect && slices.ContainsFunc(o.placed, func(f placement) bool { return f.where == asPartition })
}

// Profile is the profile's name.
func (o *Options) Profile() string { return o.profile }

// Columns are the columns of the outbox table that the options name.
type Columns struct {
	ID, Route, Key, Payload string
	Timestamp               string   // "": none
	Untimed                 bool     // the sinks of the profile drop the record's time, so nothing is wrong with any
	Extra                   []string // the others, each once, and outbox.ShapeColumn
	Optional                []string // those of Extra that a table may lack
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
	c.Extra = append(c.Extra, outbox.ShapeColumn)
	slices.Sort(c.Extra)
	c.Extra = slices.Compact(c.Extra)
	return c
}
