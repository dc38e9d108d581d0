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

// routeInName is the routed value in the name of an envelope's schema: Debezium keeps that of the first event of each schema in
// the life of its process, the relay names each event's own.
var routeInName = regexp.MustCompile(`\\"name\\":\\"` + Prefix + `\.public\.(\w+)\.[^"]*\.Value\\"`)

// neutral is a record without what deliberately differs.
func neutral(r Record) string {
	r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h Header) bool { return strings.HasPrefix(h.Name, context) })
	text, err := plainJSON(r)
	if err != nil {
		return err.Error()
	}
	return routeInName.ReplaceAllString(string(text), `\"name\":\"$1\"`)
}

// Differences are the lines in which two lists of records differ, at most some of them; none when they are the same.
func Differences(want, got []Record) []string {
	const most = 10
	var all []string
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = neutral(want[i])
		}
		if i < len(got) {
			g = neutral(got[i])
		}
		if w != g {
			all = append(all, fmt.Sprintf("Debezium %s\n   relay %s", w, g))
		}
		if len(all) == most {
			break
		}
	}
	return all
}

// Case is the name of the case that a record belongs to, by the route of its rows; "" for none.
func (g *Group) Case(r Record) string {
	best := ""
	for _, c := range g.Cases {
		text := r.Topic + " " + r.Exchange + " " + r.RoutingKey
		if strings.Contains(text, c.Name) && len(c.Name) > len(best) {
			best = c.Name
		}
	}
	return best
}
