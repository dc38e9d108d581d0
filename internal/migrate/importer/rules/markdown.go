// Writing the tables of docs/import.md, so that they say what the rules do.

package rules

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

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
