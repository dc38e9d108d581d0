package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rule says what becomes of some properties. Names are those of Connect; Debezium Server's without debezium.source., and
// sink., format., transforms. and predicates. without debezium.; producer. is Connect's producer.override. and the server's
// sink.kafka.producer.; router. is transforms.NAME. of the Outbox Event Router. A * at the end, or between dots, is any text.
type rule struct {
	names   []string
	only    string // the profile that has it; "" for both
	verdict Verdict
	target  string                        // our key
	why     string                        // for the report and for docs/import.md
	take    func(b *builder, p *property) // nil: the verdict is always this one
}

// chapter is a heading of docs/import.md and its rules.
type chapter struct {
	title string
	rules []rule
}

// chapters is every rule, in the order of the page. The first one that fits counts.
var chapters = []chapter{
	{"The connector and its database", databaseRules()},
	{"Slot, publication, position", slotRules()},
	{"Tables and columns", tableRules()},
	{"Snapshots", snapshotRules()},
	{"Rates, retries, errors", timingRules()},
	{"What shows in records", recordRules()},
	{"Other parts of the connector", otherRules()},
	{"Outbox Event Router", routerRules()},
	{"Transforms and predicates", transformRules()},
	{"Converters and formats", converterRules()},
	{"Kafka producer", producerRules()},
	{"RabbitMQ", rabbitRules()},
	{"Debezium Server", serverRules()},
	{"Kafka Connect", connectRules()},
}

var rules = allRules()

func allRules() (all []rule) {
	for _, c := range chapters {
		all = append(all, c.rules...)
	}
	return all
}

// ruleNames are the names that the rules have for properties.
func ruleNames() (names []string) {
	for _, r := range rules {
		names = append(names, r.names...)
	}
	return names
}

// rule is the first one that fits the name.
func (b *builder) rule(name string) *rule {
	for i := range rules {
		if r := &rules[i]; (r.only == "" || r.only == b.profile) && slices.ContainsFunc(r.names, func(pattern string) bool { return fits(pattern, name) }) {
			return r
		}
	}
	return nil
}

// fits compares a name with a pattern in which * is any text that is not empty.
func fits(pattern, name string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, before)
	if !ok {
		return false
	}
	if after == "" {
		return rest != ""
	}
	for i := 1; i <= len(rest); i++ {
		if fits(after, rest[i:]) {
			return true
		}
	}
	return false
}

// superseded is a rule for properties that need nothing.
func superseded(why string, names ...string) rule {
	return rule{names: names, verdict: Superseded, why: why}
}

// impossible is a rule for properties that are always refused.
func impossible(why string, names ...string) rule {
	return rule{names: names, verdict: Cannot, why: why}
}

// honoured is a rule for properties that are written somewhere by what is made of several.
func honoured(target, why string, names ...string) rule {
	return rule{names: names, verdict: Honoured, target: target, why: why}
}

// mapped is honoured for what has another name or unit here.
func mapped(target, why string, names ...string) rule {
	return rule{names: names, verdict: Mapped, target: target, why: why}
}

// when is a rule that looks at the value.
func when(r rule, take func(b *builder, p *property)) rule {
	r.take = take
	return r
}

// warned is a rule whose reason is read as a warning.
func warned(r rule) rule {
	return when(r, func(b *builder, p *property) { b.warn(p, r.verdict, "", r.why) })
}

// unlessOn is superseded while the property is not true, and cannot when it is.
func unlessOn(off, on string, names ...string) rule {
	return when(rule{names: names, verdict: Superseded, why: off + "; true: cannot, " + on}, func(b *builder, p *property) {
		if b.is(p.name, "", "false") {
			b.say(p, Superseded, "", off)
			return
		}
		b.cannot(p, on)
	})
}

// oneOf gives a verdict for each value, and cannot for others, with a word on why there are no others.
func oneOf(r rule, noOthers string, values map[string]string) rule {
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(v string) bool { return v == "" })
	others := "want " + strings.Join(known, ", ")
	if len(known) > 1 {
		others = "want one of " + strings.Join(known, ", ")
	}
	if noOthers != "" {
		others += ": " + noOthers
	}
	return when(r, func(b *builder, p *property) {
		for value, why := range values {
			if b.is(p.name, "", value) {
				b.say(p, r.verdict, r.target, why)
				return
			}
		}
		b.cannot(p, fmt.Sprintf("is %q, %s", p.value.resolved(), others))
	})
}

const noClasses = "there are no Java classes here"

// only is rules that one profile has.
func only(profile string, list ...rule) []rule {
	for i := range list {
		list[i].only = profile
	}
	return list
}
