// The settings that were found, and what the rules ask of them.

package importer

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// eventRouter is the class of the Outbox Event Router.
const eventRouter = "io.debezium.transforms.outbox.EventRouter"

// settings is one list of properties, by what name they came, and the verdicts that were given on them.
type settings struct {
	profile   string
	props     []*property
	byName    map[string]*property
	router    string // the name of the Outbox Event Router among the transforms; "" for none
	chain     []string
	providers map[string]string // classes of Connect's configuration providers
	worker    bool              // the worker's file was given
	entries   []Entry
	known     []string // names of properties that the rules have
}

func newSettings(known []string) *settings {
	return &settings{known: known, byName: map[string]*property{}, providers: map[string]string{}}
}

func (set *settings) connect() bool { return set.profile == debezium.Connect }

// add keeps a property; of two with one name, which the worker and the connector may give, the connector'set.
func (set *settings) add(p *property) {
	if first, twice := set.byName[p.name]; twice {
		set.note(Superseded, p.written, p.file, "", "overridden by "+first.written+inFile(first.file, p.file))
		set.entries[len(set.entries)-1].Warning = strings.HasSuffix(first.written, imageDefault)
		return
	}
	set.props = append(set.props, p)
	set.byName[p.name] = p
}

// get is a property that can be used.
func (set *settings) get(name string) *property {
	if p := set.byName[name]; p != nil && p.fault == "" && !p.refused {
		return p
	}
	return nil
}

// plain is the text of a property, or what Debezium takes when it is not set; false when only the running relay could know it.
func (set *settings) plain(name, byDefault string) (string, bool) {
	p := set.byName[name]
	if p == nil {
		return byDefault, true
	}
	if p.fault != "" {
		return "", false
	}
	return p.value.plain()
}

// is compares a property without regard to case, as Debezium does for most of its names of modes.
func (set *settings) is(name, byDefault, want string) bool {
	text, ok := set.plain(name, byDefault)
	return ok && strings.EqualFold(strings.TrimSpace(text), want)
}

// isOn reads a truth.
func (set *settings) isOn(name string, byDefault bool) bool {
	text := "false"
	if byDefault {
		text = "true"
	}
	return set.is(name, text, "true")
}

func (set *settings) note(v Verdict, name, file, target, why string) {
	set.entries = append(set.entries, Entry{Verdict: v, Property: name, File: file, Target: target, Why: why})
}

// say gives the verdict on a property.
func (set *settings) say(p *property, v Verdict, target, why string) {
	set.note(v, p.written, p.file, target, why)
}

// warn says it so that it is read.
func (set *settings) warn(p *property, v Verdict, target, why string) {
	set.say(p, v, target, why)
	set.entries[len(set.entries)-1].Warning = true
}

// cannot is the verdict that stops the import.
func (set *settings) cannot(p *property, why string) {
	p.refused = true
	set.say(p, Cannot, "", why)
}

// absent is a verdict on a property that should be there; name is the rules'.
func (set *settings) absent(v Verdict, name, target, why string) {
	if !set.connect() {
		name = serverName(name)
	}
	set.note(v, name+" (not set)", "", target, why)
}

// aliases finds the chain of transforms and the router in it, by which the router's options get their names.
func (set *settings) aliases(all []setting) {
	text := map[string]string{}
	for _, one := range all {
		text[strings.TrimPrefix(one.name, "debezium.")] = one.text
	}
	set.chain = splitList(text["transforms"])
	for _, alias := range set.chain {
		if set.router == "" && strings.TrimSpace(text["transforms."+alias+".type"]) == eventRouter {
			set.router = alias
		}
	}
}

// canonical gives the router's options the name that the rules have for them.
func (set *settings) canonical(name string) string {
	if option, ok := strings.CutPrefix(name, "transforms."+set.router+"."); ok && set.router != "" {
		return "router." + option
	}
	return name
}
