// Every rule, in the order of docs/import.md.

package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

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

// Rules are the rules of all chapters, in their order: the first one that fits a name counts.
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

const preface = `Names are those of Kafka Connect. In Debezium Server ` + "`debezium.source.`" + ` stands before them; before ` + "`transforms` and `predicates`" + ` only
` + "`debezium.`" + `; the Kafka producer's are ` + "`producer.override.*`" + ` of a connector, ` + "`producer.*`" + ` of its worker and
` + "`debezium.sink.kafka.producer.*`" + ` there. The Event Router's stand behind ` + "`transforms.NAME.`" + `. ` + "`*`" + ` is any text. Of several lines that fit
the first counts. The verdict is the usual one; the last column says which values have another. A property that fits no line: cannot.

`

// Tables is every rule as Markdown, under the headings of its chapter.
func Tables() string {
	var out strings.Builder
	out.WriteString(preface)
	for _, c := range chapters {
		fmt.Fprintf(&out, "### %s\n\n| Property | Verdict | Ours | What it becomes, or why not |\n|---|---|---|---|\n", c.title)
		for _, r := range c.rules {
			shown := make([]string, len(r.Names))
			for i, name := range r.Names {
				shown[i] = "`" + pageName(r.Only, name) + "`"
			}
			target := ""
			if r.target != "" {
				target = "`" + r.target + "`"
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", strings.Join(shown, ", "), r.verdict, target, strings.ReplaceAll(r.why, "|", `\|`))
		}
		out.WriteByte('\n')
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// pageName is the name as a reader knows it.
func pageName(profile, name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "router."), "worker."), "other.")
	if profile == debezium.Server && (strings.HasPrefix(name, "sink.") || strings.HasPrefix(name, "format.")) {
		return "debezium." + name
	}
	return name
}
