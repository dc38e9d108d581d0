// Package rules decides about each of Debezium's properties what becomes of it here, and writes our
// configuration.
package rules

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

// Apply goes through the properties in their order, and then through what is made of several, or of
// the absence of one.
func Apply(s *settings.Settings) *Builder {
	b := &Builder{Settings: s}
	b.Props = slices.DeleteFunc(b.Props, b.otherSink)
	for _, p := range b.Props {
		r := b.Rule(p.Name)
		newer := b.newer(p)
		switch {
		case p.Fault != "" && (r == nil || r.verdict != output.Superseded || r.take != nil):
			b.Cannot(p, p.Fault)
		case r == nil:
			b.Cannot(p, unknownProperty)
		case newer != nil:
			b.dropped(p, newer)
		case r.take != nil:
			r.take(b, p)
		case r.verdict == output.Honoured || r.verdict == output.Mapped:
			target := r.target
			if target == compatOptions {
				target += "." + b.optionName(p)
			}
			b.Say(p, r.verdict, target, "")
		default:
			b.Say(p, r.verdict, "", r.why)
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

// lostCapitals warns of a variable that Debezium itself may not have found: it reads the
// lower-cased name.
func (b *Builder) lostCapitals(p *settings.Property) {
	last := &b.Entries[len(b.Entries)-1]
	if strings.HasPrefix(strings.ToUpper(p.Written), "DEBEZIUM_") && strings.ToLower(p.Name) != p.Name && (last.Verdict == output.Honoured || last.Verdict == output.Mapped) {
		last.Warning, last.Why = true, "taken as "+settings.ServerName(p.Name)+"; Debezium 3.6 and older may not read it from the environment, and do what they do without it"
	}
}

// otherSink takes out what configures a sink that sink.type does not choose.
func (b *Builder) otherSink(p *settings.Property) bool {
	kind := b.kind()
	if b.Connect() || kind != "kafka" && kind != "rabbitmq" {
		return false
	}
	other := map[string][]string{"kafka": {rabbitPrefix}, "rabbitmq": {"sink.kafka.", "producer."}}[kind]
	if !slices.ContainsFunc(other, func(prefix string) bool { return strings.HasPrefix(p.Name, prefix) }) {
		return false
	}
	b.Say(p, output.Superseded, "", "sink.type is "+kind)
	delete(b.ByName, p.Name)
	return true
}

// Next is what to do with the file. A relay that is started on a new slot once Debezium is stopped
// begins after what was committed in between.
func (b *Builder) Next() string {
	return "Do not stop Debezium: cdc-relay takeover --from-slot " + b.slot() + " says when. Once that is complete: cdc-relay run."
}
