package importer

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// builder takes the properties, asks the rules about each, and gathers the document and the report.
type builder struct {
	profile   string
	props     []*property
	byName    map[string]*property
	router    string // the name of the Outbox Event Router among the transforms; "" for none
	chain     []string
	providers map[string]string // classes of Connect's configuration providers
	worker    bool              // the worker's file was given
	entries   []Entry
	doc       document
}

func newBuilder() *builder {
	return &builder{byName: map[string]*property{}, providers: map[string]string{}}
}

func (b *builder) connect() bool { return b.profile == debezium.Connect }

// add keeps a property; of two with one name, which the worker and the connector may give, the connector's.
func (b *builder) add(p *property) {
	if first, twice := b.byName[p.name]; twice {
		b.note(Superseded, p.written, p.file, "", "overridden by "+first.written+inFile(first.file, p.file))
		b.entries[len(b.entries)-1].Warning = strings.HasSuffix(first.written, imageDefault)
		return
	}
	b.props = append(b.props, p)
	b.byName[p.name] = p
}

// get is a property that can be used.
func (b *builder) get(name string) *property {
	if p := b.byName[name]; p != nil && p.fault == "" && !p.refused {
		return p
	}
	return nil
}

// plain is the text of a property, or what Debezium takes when it is not set; false when only the running relay could know it.
func (b *builder) plain(name, byDefault string) (string, bool) {
	p := b.byName[name]
	if p == nil {
		return byDefault, true
	}
	if p.fault != "" {
		return "", false
	}
	return p.value.plain()
}

// is compares a property without regard to case, as Debezium does for most of its names of modes.
func (b *builder) is(name, byDefault, want string) bool {
	text, ok := b.plain(name, byDefault)
	return ok && strings.EqualFold(strings.TrimSpace(text), want)
}

// isOn reads a truth.
func (b *builder) isOn(name string, byDefault bool) bool {
	text := "false"
	if byDefault {
		text = "true"
	}
	return b.is(name, text, "true")
}

func (b *builder) note(v Verdict, name, file, target, why string) {
	b.entries = append(b.entries, Entry{Verdict: v, Property: name, File: file, Target: target, Why: why})
}

// say gives the verdict on a property.
func (b *builder) say(p *property, v Verdict, target, why string) {
	b.note(v, p.written, p.file, target, why)
}

// warn says it so that it is read.
func (b *builder) warn(p *property, v Verdict, target, why string) {
	b.say(p, v, target, why)
	b.entries[len(b.entries)-1].Warning = true
}

// cannot is the verdict that stops the import.
func (b *builder) cannot(p *property, why string) {
	p.refused = true
	b.say(p, Cannot, "", why)
}

// absent is a verdict on a property that should be there; name is the rules'.
func (b *builder) absent(v Verdict, name, target, why string) {
	if !b.connect() {
		name = serverName(name)
	}
	b.note(v, name+" (not set)", "", target, why)
}

// set writes a key of ours that these properties are the reason for.
func (b *builder) set(path, scalar string, from ...*property) {
	b.doc.set(path, scalar, origins(from))
}

func origins(from []*property) string {
	var files, all []string
	for _, p := range from {
		if p == nil {
			continue
		}
		if !slices.Contains(files, p.file) {
			files = append(files, p.file)
		}
		all = append(all, p.written)
	}
	if len(all) == 0 {
		return ""
	}
	return strings.Join(files, ", ") + ": " + strings.Join(all, ", ")
}

// aliases finds the chain of transforms and the router in it, by which the router's options get their names.
func (b *builder) aliases(settings []setting) {
	text := map[string]string{}
	for _, s := range settings {
		text[strings.TrimPrefix(s.name, "debezium.")] = s.text
	}
	b.chain = splitList(text["transforms"])
	for _, alias := range b.chain {
		if b.router == "" && strings.TrimSpace(text["transforms."+alias+".type"]) == eventRouter {
			b.router = alias
		}
	}
}

// canonical gives the router's options the name that the rules have for them.
func (b *builder) canonical(name string) string {
	if option, ok := strings.CutPrefix(name, "transforms."+b.router+"."); ok && b.router != "" {
		return "router." + option
	}
	return name
}

// decide goes through the properties in their order, and then through what is made of several, or of the absence of one.
func (b *builder) decide() {
	b.props = slices.DeleteFunc(b.props, b.otherSink)
	for _, p := range b.props {
		r := b.rule(p.name)
		switch {
		case p.fault != "" && (r == nil || r.verdict != Superseded || r.take != nil):
			b.cannot(p, p.fault)
		case r == nil:
			b.cannot(p, "is not known to this importer: if Debezium ignores it, so may you, with --force")
		case r.take != nil:
			r.take(b, p)
		case r.verdict == Honoured || r.verdict == Mapped:
			target := r.target
			if target == compatOptions {
				target += "." + b.optionName(p)
			}
			b.say(p, r.verdict, target, "")
		default:
			b.say(p, r.verdict, "", r.why)
		}
		b.lostCapitals(p)
	}
	b.transforms()
	b.headers()
	b.source()
	b.tables()
	b.sink()
	b.converters()
	b.options()
}

// lostCapitals warns of a variable that Debezium itself may not have found: it reads the lower-cased name.
func (b *builder) lostCapitals(p *property) {
	last := &b.entries[len(b.entries)-1]
	if strings.HasPrefix(strings.ToUpper(p.written), "DEBEZIUM_") && strings.ToLower(p.name) != p.name && (last.Verdict == Honoured || last.Verdict == Mapped) {
		last.Warning, last.Why = true, "taken as "+serverName(p.name)+"; Debezium 3.6 and older may not read it from the environment, and do what they do without it"
	}
}

// otherSink takes out what configures a sink that sink.type does not choose.
func (b *builder) otherSink(p *property) bool {
	kind := b.kind()
	if b.connect() || kind != "kafka" && kind != "rabbitmq" {
		return false
	}
	other := map[string][]string{"kafka": {rabbitPrefix}, "rabbitmq": {"sink.kafka.", "producer."}}[kind]
	if !slices.ContainsFunc(other, func(prefix string) bool { return strings.HasPrefix(p.name, prefix) }) {
		return false
	}
	b.say(p, Superseded, "", "sink.type is "+kind)
	delete(b.byName, p.name)
	return true
}
