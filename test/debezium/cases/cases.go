// Package cases is the list of what cdc-relay and Debezium must say alike: rows, and the options
// under which they become records. test/long/debezium has the real Debezium make records of them,
// which are the files in testdata beside this directory; test/debezium has the relay do so and
// compares.
package cases

import (
	"crypto/md5"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The profiles of sink.compat.
const (
	Connect = "debezium-connect"
	Server  = "debezium-server"
)

// Prefix is topic.prefix in all cases: it names the schemas.
const Prefix = "shop"

// Group are cases that share a configuration, and so one run of Debezium and one of the relay.
type Group struct {
	Name    string            // also the beginning of the routes of its rows
	Profile string            // Connect or Server
	Rabbit  bool              // RabbitMQ instead of Kafka
	Options map[string]string // of sink.compat.options: Debezium's names
	// of Debezium's connector alone: what has no influence on the records, or is the relay's own
	// matter
	Source map[string]string
	Setup  []string // SQL that makes the tables; none: table outbox
	Tables []string // none: outbox
	Cases  []Case
	End    string // SQL of a row that Debezium sends whatever went before; "": one of table outbox

	// Stops says of a group that its one case stops Debezium for good, in words of its log. The
	// relay makes a dead letter of it, or refuses such a table when it starts, in the words of
	// Refused, or goes on. Topic is one that it needs besides.
	Stops      string
	Difference Difference
	Refused    string
	GoesOn     bool
	Topic      string
}

// Case is one thing that is shown by some rows. Its SQL may hold {id}, another UUID in each
// statement, {n}, another number, and {route}, the name of group and case, by which its records are
// known.
type Case struct {
	Name string
	SQL  []string // each of them one transaction
	// Differs says that the relay deliberately does something else, and Why; its records are then
	// not compared.
	Differs Difference
	Why     string
}

// Statements are the SQL of all cases in their order and then the end, of which id is the one by
// which it is known.
func (g *Group) Statements() (all []string, end string) {
	n := 0
	fill := func(name, sql string) string {
		n++
		end = uuid(g.Name, n)
		if !strings.Contains(sql, "{id}") {
			end = number(n)
		}
		return strings.NewReplacer("{id}", uuid(g.Name, n), "{n}", number(n), "{route}", g.Route(name)).Replace(sql)
	}
	for _, c := range g.Cases {
		for _, sql := range c.SQL {
			all = append(all, fill(c.Name, sql))
		}
	}
	last := g.End
	if last == "" {
		last = row("outbox", `'{"end": true}'`)
	}
	return append(all, fill("end", last)), end
}

// Route is the aggregatetype of the rows of a case.
func (g *Group) Route(name string) string { return g.Name + "." + name }

func uuid(group string, n int) string {
	sum := md5.Sum([]byte(group + strconv.Itoa(n)))
	return fmt.Sprintf("%x-%x-7%03x-8%03x-%012x", sum[:4], sum[4:6], n&0xfff, n&0xfff, n)
}

func number(n int) string { return strconv.Itoa(7_700_000_000 + n) }

// SetupSQL makes the tables.
func (g *Group) SetupSQL() []string {
	if len(g.Setup) == 0 {
		return []string{outbox("outbox", "jsonb")}
	}
	return g.Setup
}

// TableNames are the captured tables.
func (g *Group) TableNames() []string {
	if len(g.Tables) == 0 {
		return []string{"outbox"}
	}
	return g.Tables
}

// smt reports whether an option is one of the Event Router. field.name.adjustment.mode is one of
// the connector, too.
func smt(name string) bool {
	return strings.HasPrefix(name, "table.field") || strings.HasPrefix(name, "table.json") || strings.HasPrefix(name, "table.expand") ||
		strings.HasPrefix(name, "table.op") || strings.HasPrefix(name, "route.") || name == "field.name.adjustment.mode" || strings.HasPrefix(name, "tracing.")
}

// Connector adds the options of the group to those of Debezium's connector; what is Debezium
// Server's own goes to server.
func (g *Group) Connector(source, server map[string]string) {
	source["topic.prefix"] = Prefix
	source["transforms"] = "outbox"
	source["transforms.outbox.type"] = "io.debezium.transforms.outbox.EventRouter"
	maps.Copy(source, g.Source)
	for name, value := range g.Options {
		switch {
		case smt(name):
			source["transforms.outbox."+name] = value
		case strings.HasPrefix(name, "format.") || strings.HasPrefix(name, "sink."):
			server["debezium."+name] = value
		default:
			source[name] = value
		}
	}
}

// differs marks a case as one in which the relay deliberately does something else.
func (g *Group) differs(name string, d Difference, why string) {
	for i := range g.Cases {
		if g.Cases[i].Name == name {
			g.Cases[i].Differs, g.Cases[i].Why = d, why
		}
	}
}

// Placed says that a column of the row names the partition; without it, records with a null key are
// spread by chance.
func (g *Group) Placed() bool {
	return g.Profile == Connect && strings.Contains(g.Options["table.fields.additional.placement"], ":partition")
}

// Exchanges are those of RabbitMQ that the records go to: one, or one for each topic.
func (g *Group) Exchanges() []string {
	if one := g.Options["sink.rabbitmq.exchange"]; one != "" {
		return []string{one}
	}
	all := []string{"outbox.event." + g.Route("end")}
	for _, c := range g.Cases {
		all = append(all, "outbox.event."+g.Route(c.Name))
	}
	return all
}

// All are the groups in the order of their names' lists.
func All() []Group {
	return slices.Concat(connectConverters(), connectOptions(), settings(), oddColumns(), oddDefaults(), oddPayloads(), twice(), routerTests(), connectStops(), serverKafka(), serverRabbitMQ())
}

// with is a map with more in it.
func with(one map[string]string, more ...string) map[string]string {
	all := maps.Clone(one)
	if all == nil {
		all = map[string]string{}
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}
