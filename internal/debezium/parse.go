// Reading the options of a profile: everything that is wrong with them is reported at once.

package debezium

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/columns"
)

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
	if p.o.rabbit.source == fromKey && !p.o.textKeys {
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
