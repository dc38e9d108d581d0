package importer

import (
	"slices"
	"strings"
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
		{"table.field.event.id", "id"}, {"table.field.event.key", "aggregateid"}, {"route.by.field", "aggregatetype"}, {"table.field.event.payload", "payload"},
		{"table.field.event.timestamp", ""}, {"table.field.event.schema.version", ""},
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

// options writes sink.compat, and asks the profile whether it takes them.
func (b *builder) options() {
	b.doc.set("sink.compat.profile", b.profile, "what Debezium makes of a row, byte for byte")
	plain := map[string]string{}
	from := map[string]*property{}
	for _, p := range b.props {
		name := b.optionName(p)
		if name == "" || p.fault != "" {
			continue
		}
		if first := from[name]; first != nil {
			b.reverse(p, "is given beside "+first.written)
			continue
		}
		v := p.value
		if strings.HasSuffix(p.name, ".error.on.missing") {
			v = literal(map[bool]string{true: "error", false: "ignore"}[b.isOn(p.name, true)])
		}
		from[name] = p
		if text, ok := v.plain(); ok {
			plain[name] = text
		}
		b.doc.option(name, quote(v.resolved()), origins([]*property{p}))
	}
	for _, fault := range optionFaults(b.profile, plain) {
		if p := from[fault.option]; p != nil {
			b.reverse(p, fault.words)
			continue
		}
		b.absent(Cannot, fault.option, compatOptions, fault.words)
	}
}

type optionFault struct{ option, words string }
