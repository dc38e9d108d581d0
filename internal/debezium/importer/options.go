package importer

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// usedColumns are the columns that the Event Router reads.
func (b *builder) usedColumns() []string {
	var columns []string
	add := func(name string) {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(columns, name) {
			columns = append(columns, name)
		}
	}
	for _, c := range []struct{ option, byDefault string }{
		{"table.field.event.id", "id"},
		{"table.field.event.key", "aggregateid"},
		{"route.by.field", "aggregatetype"},
		{"table.field.event.payload", "payload"},
		{"table.field.event.timestamp", ""},
		{"table.field.event.schema.version", ""},
	} {
		add(firstOf(b.plain("router."+c.option, c.byDefault)))
	}
	for _, placed := range splitList(firstOf(b.plain("router.table.fields.additional.placement", ""))) {
		column, _, _ := strings.Cut(placed, ":")
		add(column)
	}
	return columns
}

// optionName is the option of sink.compat that a property is; "" when it is none.
func (b *builder) optionName(p *property) string {
	if option, ok := strings.CutPrefix(p.name, "router."); ok {
		switch {
		case slices.Contains(routerOptions, option):
			return option
		case option == "table.fields.additional.error.on.missing":
			return "table.field.additional.missing"
		}
		return oldRouterOptions[option]
	}
	r := b.rule(p.name)
	switch {
	case r == nil || r.verdict != Honoured && r.verdict != Mapped || r.target != compatOptions:
		return ""
	case p.name == "database.server.name":
		return "topic.prefix"
	}
	return p.name
}

// options writes sink.compat, and asks the profile whether it takes them. What it does not know is left out; what it knows
// and does not take stays, so that the relay refuses to start until somebody has decided.
func (b *builder) options() {
	b.doc.set("sink.compat.profile", b.profile, "what Debezium makes of a row, byte for byte")
	plain := map[string]string{}
	from := map[string]*property{}
	var names []string
	for _, p := range b.props {
		name := b.optionName(p)
		if name == "" || p.fault != "" {
			continue
		}
		if first := from[name]; first != nil {
			b.reverse(p, "is given beside "+first.written)
			continue
		}
		if strings.HasSuffix(p.name, ".error.on.missing") {
			p.value = literal(map[bool]string{true: "error", false: "ignore"}[b.isOn(p.name, true)])
		}
		from[name], names = p, append(names, name)
		if text, ok := p.value.plain(); ok {
			plain[name] = text
		} else if name == "topic.prefix" {
			plain[name] = "known-at-the-start" // that there is one is what others ask for
		}
	}
	unknown := b.faults(plain, from)
	for _, name := range names {
		if !slices.Contains(unknown, name) {
			b.doc.option(name, quote(from[name].value.resolved()), origins([]*property{from[name]}))
		}
	}
}

// faults turns the verdicts on options that the profile does not take, and gives those that it does not know.
func (b *builder) faults(plain map[string]string, from map[string]*property) (unknown []string) {
	_, faults := debezium.Parse(b.profile, plain)
	for _, fault := range faults {
		switch p := from[fault.Option]; {
		case p != nil && fault.Unknown:
			unknown = append(unknown, fault.Option)
			b.reverse(p, "is no option of what the profile has")
		case p != nil:
			b.reverse(p, fault.Words)
		case b.byName[fault.Option] == nil: // else that property has its verdict
			b.absent(Cannot, fault.Option, compatOptions, fault.Words)
		}
	}
	return unknown
}
