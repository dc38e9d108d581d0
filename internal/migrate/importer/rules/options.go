// The section sink.compat.

package rules

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

// optionName is the option of sink.compat that a property is; "" when it is none.
func (b *Builder) optionName(p *settings.Property) string {
	if option, ok := strings.CutPrefix(p.Name, "router."); ok {
		switch {
		case b.newer(p) != nil:
			return ""
		case slices.Contains(routerOptions, option):
			return option
		case option == "table.fields.additional.error.on.missing":
			return "table.field.additional.missing"
		}
		return oldRouterOptions[option]
	}
	r := b.Rule(p.Name)
	switch {
	case b.newer(p) != nil:
		return ""
	case r == nil || r.verdict != output.Honoured && r.verdict != output.Mapped || r.target != compatOptions:
		return ""
	case p.Name == "database.server.name":
		return "topic.prefix"
	}
	return p.Name
}

// newer is the property that Debezium 2 and newer read in the place of one whose name they dropped;
// nil: it is not given, or p has no such name.
func (b *Builder) newer(p *settings.Property) *settings.Property {
	if p.Name == "database.server.name" {
		return b.ByName["topic.prefix"]
	}
	option, _ := strings.CutPrefix(p.Name, "router.")
	return b.ByName["router."+oldRouterOptions[option]]
}

// dropped says that an old name stands beside the new one, in whatever order.
func (b *Builder) dropped(p, newer *settings.Property) {
	why := "Debezium 2 and newer read " + newer.Written + " in its place"
	if p.Value.Written() == newer.Value.Written() {
		b.Say(p, output.Superseded, "", why)
		return
	}
	b.Warn(p, output.Superseded, "", why+"; if yours is older, this is the one that counts: leave out the other")
}

// options writes sink.compat, and asks the profile whether it takes them. What it does not know is
// left out; what it knows and does not take stays, so that the relay refuses to start until
// somebody has decided.
func (b *Builder) options() {
	b.Doc.Set("sink.compat.profile", b.Profile, "what Debezium makes of a row, byte for byte")
	plain := map[string]string{}
	from := map[string]*settings.Property{}
	var names []string
	for _, p := range b.Props {
		name := b.optionName(p)
		if name == "" || p.Fault != "" {
			continue
		}
		if first := from[name]; first != nil {
			b.reverse(p, "is given beside "+first.Written)
			continue
		}
		if strings.HasSuffix(p.Name, ".error.on.missing") {
			p.Value = output.Literal(map[bool]string{true: "error", false: "ignore"}[b.IsOn(p.Name, true)])
		}
		from[name], names = p, append(names, name)
		if text, ok := p.Value.Plain(); ok {
			plain[name] = text
		} else if name == "topic.prefix" {
			plain[name] = "known-at-the-start" // that there is one is what others ask for
		}
	}
	unknown := b.faults(plain, from)
	for _, name := range names {
		if !slices.Contains(unknown, name) {
			b.Doc.Option(name, output.Quote(from[name].Value.Resolved()), origins([]*settings.Property{from[name]}))
		}
	}
}

// faults turns the verdicts on options that the profile does not take, and gives those that it does
// not know.
func (b *Builder) faults(plain map[string]string, from map[string]*settings.Property) (unknown []string) {
	_, faults := debezium.Parse(b.Profile, plain)
	for _, fault := range faults {
		switch p := from[fault.Option]; {
		case p != nil && fault.Unknown:
			unknown = append(unknown, fault.Option)
			b.reverse(p, "is no option of what the profile has")
		case p != nil:
			b.reverse(p, fault.Words)
		case b.ByName[fault.Option] == nil: // else that property has its verdict
			b.Absent(output.Cannot, fault.Option, compatOptions, fault.Words)
		}
	}
	return unknown
}
