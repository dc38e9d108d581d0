// Every rule, in the order of docs/import.md.

package rules

import "slices"

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

var Rules = allRules()

func allRules() (all []rule) {
	for _, c := range chapters {
		all = append(all, c.rules...)
	}
	return all
}

// Names are the names that the rules have for properties.
func Names() (names []string) {
	for _, r := range Rules {
		names = append(names, r.Names...)
	}
	return names
}

// Rule is the first one that fits the name.
func (b *Builder) Rule(name string) *rule {
	for i := range Rules {
		if r := &Rules[i]; (r.Only == "" || r.Only == b.Profile) && slices.ContainsFunc(r.Names, func(pattern string) bool { return Fits(pattern, name) }) {
			return r
		}
	}
	return nil
}
