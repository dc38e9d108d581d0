// The settings that were found, and what the rules ask of them.

package settings

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// EventRouter is the class of the Outbox Event Router.
const EventRouter = "io.debezium.transforms.outbox.EventRouter"

// Property is one setting of the input.
type Property struct {
	// as the rules know it: without the prefixes of Debezium Server and of Connect's producer
	Name    string
	Written string // as it stands in its file
	File    string
	Value   output.Value
	Fault   string // why its value cannot be read: "" when it can
	Refused bool   // the verdict is cannot: nothing is made of it
}

// setting is a property under its full name, before its value is read.
type setting struct {
	name, written, file, text string
}

// Settings is one list of properties, by what name they came, and the verdicts that were given on
// them.
type Settings struct {
	Profile    string
	Props      []*Property
	ByName     map[string]*Property
	Router     string // the name of the Outbox Event Router among the transforms; "" for none
	Transforms []string
	Worker     bool // the worker's file was given
	Entries    []output.Entry
	known      []string // names of properties that the rules have
}

// New makes settings without properties. The names are those that the rules have.
func New(known []string) *Settings {
	return &Settings{known: known, ByName: map[string]*Property{}}
}

// Connect reports whether the settings are those of Debezium in Kafka Connect.
func (set *Settings) Connect() bool { return set.Profile == debezium.Connect }

// add keeps a property; of two with one name, which the worker and the connector may give, the
// connector's.
func (set *Settings) add(p *Property) {
	if first, twice := set.ByName[p.Name]; twice {
		set.note(output.Superseded, p.Written, p.File, "", "overridden by "+first.Written+inFile(first.File, p.File))
		return
	}
	set.Props = append(set.Props, p)
	set.ByName[p.Name] = p
}

// Get is a property that can be used.
func (set *Settings) Get(name string) *Property {
	if p := set.ByName[name]; p != nil && p.Fault == "" && !p.Refused {
		return p
	}
	return nil
}

// Plain is the text of a property, or what Debezium takes when it is not set; false when only the
// running relay could know it.
func (set *Settings) Plain(name, byDefault string) (string, bool) {
	p := set.ByName[name]
	if p == nil {
		return byDefault, true
	}
	if p.Fault != "" {
		return "", false
	}
	return p.Value.Plain()
}

// Is compares a property without regard to case, as Debezium does for most of its names of modes.
func (set *Settings) Is(name, byDefault, want string) bool {
	text, ok := set.Plain(name, byDefault)
	return ok && strings.EqualFold(strings.TrimSpace(text), want)
}

// IsOn reads a truth.
func (set *Settings) IsOn(name string, byDefault bool) bool {
	text := "false"
	if byDefault {
		text = "true"
	}
	return set.Is(name, text, "true")
}

func (set *Settings) note(v output.Verdict, name, file, target, why string) {
	set.Entries = append(set.Entries, output.Entry{Verdict: v, Property: name, File: file, Target: target, Why: why})
}

// Say gives the verdict on a property.
func (set *Settings) Say(p *Property, v output.Verdict, target, why string) {
	set.note(v, p.Written, p.File, target, why)
}

// Warn says it so that it is read.
func (set *Settings) Warn(p *Property, v output.Verdict, target, why string) {
	set.Say(p, v, target, why)
	set.Entries[len(set.Entries)-1].Warning = true
}

// Cannot is the verdict that stops the import.
func (set *Settings) Cannot(p *Property, why string) {
	p.Refused = true
	set.Say(p, output.Cannot, "", why)
}

// Absent is a verdict on a property that should be there; name is the rules'.
func (set *Settings) Absent(v output.Verdict, name, target, why string) {
	if !set.Connect() {
		name = ServerName(name)
	}
	set.note(v, name+" (not set)", "", target, why)
}

// aliases finds the chain of transforms and the router in it, by which the router's options get
// their names.
func (set *Settings) aliases(all []setting) {
	text := map[string]string{}
	for _, one := range all {
		text[strings.TrimPrefix(one.name, "debezium.")] = one.text
	}
	set.Transforms = SplitList(text["transforms"])
	for _, alias := range set.Transforms {
		if set.Router == "" && strings.TrimSpace(text["transforms."+alias+".type"]) == EventRouter {
			set.Router = alias
		}
	}
}

// canonical gives the router's options the name that the rules have for them.
func (set *Settings) canonical(name string) string {
	if option, ok := strings.CutPrefix(name, "transforms."+set.Router+"."); ok && set.Router != "" {
		return "router." + option
	}
	return name
}

// once takes the settings of a file; of those with one name the last.
func (set *Settings) once(l read.File) (all []setting) {
	pairs, dropped := l.Unique()
	for _, name := range dropped {
		set.note(output.Superseded, name, l.File, "", "given again further down")
	}
	for _, p := range pairs {
		all = append(all, setting{name: p.Name, written: p.Name, file: l.File, text: p.Text})
	}
	return all
}
