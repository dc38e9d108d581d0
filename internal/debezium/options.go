// The options: Debezium's own names and values, read strictly.

package debezium

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/columns"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/expand"
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

// rabbitOptions are those of the sink.
type rabbitOptions struct {
	exchange   string // "": the topic
	routingKey string
	source     routingKeySource
	transient  bool // deliveryMode 1
	null       []byte
}

// routingKeySource is routingKey.source.
type routingKeySource uint8

const (
	fromStatic routingKeySource = iota
	fromTopic
	fromKey
)

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

// value is that of an option, or what it is when it is not given.
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
