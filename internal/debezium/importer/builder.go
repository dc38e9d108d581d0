package importer

import (
	"slices"
	"strings"
)

// builder asks the rules about each setting, and gathers the document.
type builder struct {
	*settings
	doc document
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

// decide goes through the properties in their order, and then through what is made of several, or of the absence of one.
func decide(s *settings) *builder {
	b := &builder{settings: s}
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
	return b
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

// next is what to do with the file. A slot of another plugin is told apart here: a relay that is started on a new slot once
// Debezium is stopped begins behind what was committed in between.
func (b *builder) next() string {
	if !b.pgoutput() {
		return "Do not stop Debezium: cdc-relay takeover --from-slot " + b.slot() + " says when. Once that is complete: cdc-relay run."
	}
	return "Once Debezium is stopped: cdc-relay init, cdc-relay check, cdc-relay run."
}
