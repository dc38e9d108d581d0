package cases

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// context is how the headers begin that Debezium adds to every record and the relay does not.
const context = "__debezium.context."

// RunID is the one of them that is another one in each run.
const RunID = context + "runId"

// routeInName is the routed value in the name of an envelope's schema: Debezium keeps that of the
// first event of each schema in the life of its process, the relay names each event's own.
var routeInName = regexp.MustCompile(`\\"name\\":\\"` + Prefix + `\.public\.([^".]+)\.([^"]*)\.Value\\"`)

// neutral is a record without what deliberately differs.
func neutral(r Record) string {
	r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h Header) bool { return strings.HasPrefix(h.Name, context) })
	text, err := plainJSON(r)
	if err != nil {
		return err.Error()
	}
	return routeInName.ReplaceAllString(string(text), `\"name\":\"$1\"`)
}

// Differences are the lines in which two lists of records of a group differ, at most some of them;
// none when they are the same. Records of cases that deliberately differ do not count.
func (g *Group) Differences(want, got []Record) []string {
	const most = 10
	want, got = g.alike(want), g.alike(got)
	var all []string
	say := func(w, g string) {
		if w != g && len(all) < most {
			all = append(all, fmt.Sprintf("Debezium %s\n     ours %s", w, g))
		}
	}
	find := func(in []Record, r Record) string {
		if i := slices.IndexFunc(in, func(other Record) bool { return r.id() != "" && other.id() == r.id() }); i >= 0 {
			return neutral(in[i])
		}
		return "nothing"
	}
	for _, w := range want {
		say(neutral(w), find(got, w))
	}
	for _, g := range got {
		if find(want, g) == "nothing" {
			say("nothing", neutral(g))
		}
	}
	at := func(in []Record, i int) string {
		if i >= len(in) {
			return "nothing"
		}
		return neutral(in[i])
	}
	for i := range max(len(want), len(got)) {
		if len(all) == 0 { // the same ones, perhaps in another order, or more than once
			say(at(want, i), at(got, i))
		}
	}
	return all
}

// id is the header by which a record is known.
func (r Record) id() string {
	for _, h := range r.Headers {
		if h.Name == "id" {
			return string(h.Value)
		}
	}
	return ""
}

func (g *Group) alike(records []Record) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool {
		name := g.Case(r)
		return slices.ContainsFunc(g.Cases, func(c Case) bool { return c.Name == name && c.Differs != "" })
	})
}

// Case is the name of the case that a record belongs to, by its id; "" for none.
func (g *Group) Case(r Record) string { return g.caseOf(r.id()) }

func (g *Group) caseOf(id string) string {
	n := 0
	for _, c := range g.Cases {
		for range c.SQL {
			n++
			if strings.Contains(id, uuid(g.Name, n)) || strings.Contains(id, number(n)) {
				return c.Name
			}
		}
	}
	return ""
}
