package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// differs is where each difference is explained.
const differs = "../../docs/from-debezium.md#what-differs-on-purpose"

// Document is test/debezium/CASES.md.
func Document() string {
	var b strings.Builder
	groups, count := All(), 0
	for i := range groups {
		count += len(groups[i].Cases)
	}
	fmt.Fprintf(&b, `# The cases compared with Debezium

With `+"`sink.compat`"+` the relay makes of an outbox row the record that Debezium's Outbox Event Router makes of it.
These %d cases under %d configurations show it. Their rows went through a real Debezium %s, in Kafka
Connect and as Debezium Server. What arrived is kept in `+"`testdata`"+`.

- `+"`make test-all`"+` sends the same rows through the relay, `+"`make test`"+` those of ten configurations. They compare topic,
  partition, key, value, headers with their order, and timestamp; on RabbitMQ exchange, routing key, body, headers
  with their types, and properties.
- `+"`make test-nightly`"+` has the real Debezium do ten of the cases again, `+"`make golden-debezium`"+` all of them.
- Left out of every comparison: the headers `+"`%s*`"+`, the routed value in the name of an
  envelope's schema, and the partition of a record with a null key.

A test writes this page from the list that is run: `+"`go test ./test/debezium -run TestDocument -args -rewrite`"+`.

`, count, len(groups), debeziumserver.DebeziumVersion, context)
	for _, part := range []struct {
		title string
		is    func(*Group) bool
	}{
		{"Kafka Connect", func(g *Group) bool { return g.Profile == Connect && g.Stops == "" }},
		{"Debezium Server to Kafka", func(g *Group) bool { return g.Profile == Server && !g.Rabbit }},
		{"Debezium Server to RabbitMQ", func(g *Group) bool { return g.Rabbit }},
	} {
		fmt.Fprintf(&b, "## %s\n\n", part.title)
		for i := range groups {
			if part.is(&groups[i]) {
				groups[i].document(&b)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("## What stops Debezium\n\nIt stops for good at each of these. Started again, it stops at the same row.\n\n")
	for i := range groups {
		if g := &groups[i]; g.Stops != "" {
			item(&b, fmt.Sprintf("**%s** (%s). Debezium: `%s`. The relay %s.", g.Name, g.options(), g.Stops, g.outcome()))
		}
	}
	fmt.Fprintf(&b, "\n## What shows each difference\n\nThe names are those of [what differs on purpose](%s).\n\n", differs)
	for _, s := range AllShown {
		by := s.Nothing
		if len(s.By) > 0 {
			by = "`" + strings.Join(s.By, "`, `") + "`"
		}
		item(&b, fmt.Sprintf("`%s`: %s", s.Difference, by))
	}
	return b.String()
}

func (g *Group) document(b *strings.Builder) {
	var names, differ []string
	for _, c := range g.Cases {
		names = append(names, c.Name)
		if c.Differs != "" {
			differ = append(differ, fmt.Sprintf(" Except %s, on purpose ([%s](%s)): %s.", c.Name, c.Differs, differs, c.Why))
		}
	}
	item(b, fmt.Sprintf("**%s** (%s): %s. Same.%s", g.Name, g.options(), strings.Join(names, ", "), strings.Join(differ, "")))
}

func (g *Group) outcome() string {
	switch {
	case g.Refused != "":
		return "refuses the table at the start, with the reason (exit 4)"
	case g.GoesOn:
		return "goes on: an UPDATE is no event"
	default:
		return "makes a dead letter of the row and goes on"
	}
}

// options are the group's, as code. A long list is cut behind its commas, so that lines can end
// there.
func (g *Group) options() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(g.Options)) {
		value := strings.NewReplacer("org.apache.kafka.connect.", "", "io.debezium.converters.", "").Replace(g.Options[name])
		if len(name+value) > 80 {
			value = strings.ReplaceAll(value, ",", ",` `")
		}
		all = append(all, "`"+name+"="+value+"`")
	}
	if len(all) == 0 {
		return "no options"
	}
	return strings.Join(all, ", ")
}

// item writes an item of a list, in lines of at most 118 columns where it has blanks.
func item(b *strings.Builder, text string) {
	const width = 118
	line := "-"
	for _, word := range strings.Split(text, " ") {
		if len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
