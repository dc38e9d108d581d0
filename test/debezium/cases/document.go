package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// Document is docs/debezium-cases.md.
func Document() string {
	var b strings.Builder
	groups, count := All(), 0
	for i := range groups {
		count += len(groups[i].Cases)
	}
	fmt.Fprintf(&b, `# What is compared with Debezium

With `+"`sink.compat`"+` the relay makes of an outbox row the record that Debezium's Outbox Event Router makes of it. This page lists what that
rests on: %d cases under %d configurations. The rows of each went through a real Debezium %s, in Kafka Connect and as Debezium Server, and
what arrived is kept in `+"`test/debezium/testdata`"+`; `+"`make test-all`"+` sends the same rows through the relay (`+"`make test`"+` those of ten
configurations), over the same kinds of brokers, and compares topic, partition, key, value, headers with their order, and timestamp; for RabbitMQ exchange, routing key, body, headers with their
types, and properties. `+"`make test-nightly`"+` has the real Debezium do ten of the cases again. `+"`make golden-debezium`"+` makes all records again.

Left out of every comparison: the headers `+"`%s*`"+`, which Debezium adds and the relay does not, the routed value in the name of an
envelope's schema, where Debezium keeps that of the first event of its process, and the partition of a record with a null key.

This page is written by a test from the list that is run: `+"`go test ./test/debezium -run TestDocument -args -rewrite`"+`.

`, count, len(groups), debeziumserver.DebeziumVersion, context)
	for _, part := range []struct {
		title string
		is    func(*Group) bool
	}{
		{"Kafka Connect", func(g *Group) bool { return g.Profile == Connect && g.Stops == "" }},
		{"Debezium Server to Kafka", func(g *Group) bool { return g.Profile == Server && !g.Rabbit }},
		{"Debezium Server to RabbitMQ", func(g *Group) bool { return g.Rabbit }},
	} {
		fmt.Fprintf(&b, "## %s\n\n| Configuration | Options | Cases | Result |\n|---|---|---|---|\n", part.title)
		for i := range groups {
			if part.is(&groups[i]) {
				groups[i].document(&b)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("## What stops Debezium\n\nAfter each of these Debezium stops for good; its task or its process has to be started again, and stops at the same row.\n\n" +
		"| Configuration | Options | Debezium says | The relay |\n|---|---|---|---|\n")
	for i := range groups {
		if g := &groups[i]; g.Stops != "" {
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", g.Name, g.options(), g.Stops, g.outcome())
		}
	}
	return b.String()
}

func (g *Group) document(b *strings.Builder) {
	var names, differ []string
	for _, c := range g.Cases {
		names = append(names, c.Name)
		if c.Differs != "" {
			differ = append(differ, fmt.Sprintf("; %s deliberately different ([%s](from-debezium.md#what-differs-on-purpose)): %s", c.Name, c.Differs, c.Why))
		}
	}
	fmt.Fprintf(b, "| %s | %s | %s | same%s |\n", g.Name, g.options(), strings.Join(names, ", "), strings.Join(differ, ""))
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

func (g *Group) options() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(g.Options)) {
		value := strings.NewReplacer("|", `\|`, "org.apache.kafka.connect.", "", "io.debezium.converters.", "").Replace(g.Options[name])
		all = append(all, "`"+name+"="+value+"`")
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
