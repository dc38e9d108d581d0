// Every rule, in the order of docs/reference.md.

package rules

import (
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// chapter is a heading of docs/reference.md and its rules.
type chapter struct {
	title string
	rules []rule
}

// chapters is every rule, in the order of the page. The first one that fits counts.
var chapters = sync.OnceValue(func() []chapter {
	return []chapter{
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
})

// Rules are the rules of all chapters, in their order: the first one that fits a name counts.
var Rules = sync.OnceValue(allRules)

func allRules() (all []rule) {
	for _, c := range chapters() {
		all = append(all, c.rules...)
	}
	return all
}

// Names are the names that the rules have for properties.
func Names() (names []string) {
	for _, r := range Rules() {
		names = append(names, r.Names...)
	}
	return names
}

// Rule is the first one that fits the name.
func (b *Builder) Rule(name string) *rule {
	known := Rules()
	for i := range known {
		if r := &known[i]; (r.Only == "" || r.Only == b.Profile) && slices.ContainsFunc(r.Names, func(pattern string) bool { return Fits(pattern, name) }) {
			return r
		}
	}
	return nil
}

// Chapter is a heading of docs/reference.md with its entries.
type Chapter struct {
	Title   string
	Entries []Entry
}

// Entry is a rule as docs/reference.md shows it.
type Entry struct {
	Names   []string
	Verdict string
	Target  string // our key; "" for none
	Why     string
}

// Page is every rule for docs/reference.md.
func Page() (page []Chapter) {
	for _, c := range chapters() {
		shown := Chapter{Title: c.title}
		for _, r := range c.rules {
			e := Entry{Verdict: string(r.verdict), Target: r.target, Why: r.why}
			for _, name := range r.Names {
				e.Names = append(e.Names, pageName(r.Only, name))
			}
			shown.Entries = append(shown.Entries, e)
		}
		page = append(page, shown)
	}
	return page
}

// pageName is the name as a reader knows it.
func pageName(profile, name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "router."), "worker."), "other.")
	if profile == debezium.Server && (strings.HasPrefix(name, "sink.") || strings.HasPrefix(name, "format.")) {
		return "debezium." + name
	}
	return name
}
