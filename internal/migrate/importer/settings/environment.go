// Finding the properties that variables of the environment stand for. Their names have lost the
// dots, the dashes and the capitals: SINK_RABBITMQ_ROUTINGKEY_SOURCE is routingKey.source only for
// who knows that name.

package settings

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// environment takes Debezium's variables of one layer; the others go to variables, for references
// to them.
func (set *Settings) environment(l read.File, below []setting, variables map[string]string) []setting {
	pairs, dropped := l.Unique()
	for _, name := range dropped {
		set.note(output.Superseded, name, l.File, "", "given again further down")
	}
	names := variableNames(set.known, pairs, below)
	var out []setting
	var others []string
	for _, p := range pairs {
		variables[p.Name] = p.Text
		upper := strings.ToUpper(p.Name)
		if !read.IsPropertyVariable(p.Name) {
			others = append(others, p.Name)
			continue
		}
		name, known := names[upper]
		switch {
		case strings.Contains(p.Name, "."):
			// not of a shell; Compose and Kubernetes make them, and Quarkus looks for them first
			name = p.Name
		case !known:
			name = strings.ToLower(strings.ReplaceAll(upper, "_", "."))
		}
		out = append(out, setting{name: afterQuarkus(name), written: p.Name, file: l.File, text: p.Text})
	}
	if len(others) > 0 {
		slices.Sort(others)
		set.note(output.Superseded, strings.Join(others, ", "), l.File, "", "no properties of Debezium's; references to them are followed")
	}
	return out
}

// variableNames are the properties by the names of their variables: those that a file below has,
// and those that the rules know.
func variableNames(known []string, pairs []read.Pair, below []setting) map[string]string {
	names := map[string]string{}
	transforms, predicates := "", ""
	for _, s := range below {
		names[read.VariableOf(s.name)] = s.name
		switch s.name {
		case "debezium.transforms":
			transforms = s.text
		case "debezium.predicates":
			predicates = s.text
		}
	}
	for _, p := range pairs {
		switch read.VariableOf(p.Name) {
		case "DEBEZIUM_TRANSFORMS":
			transforms = p.Text
		case "DEBEZIUM_PREDICATES":
			predicates = p.Text
		}
	}
	add := func(name string) {
		if _, taken := names[read.VariableOf(name)]; !taken {
			names[read.VariableOf(name)] = name
		}
	}
	for _, name := range known {
		option, router := strings.CutPrefix(name, "router.")
		switch {
		case strings.Contains(name, "*"):
		case router:
			for _, alias := range SplitList(transforms) {
				add("debezium.transforms." + alias + "." + option)
			}
		default:
			add(ServerName(name))
		}
	}
	for _, alias := range SplitList(predicates) {
		add("debezium.predicates." + alias + ".type")
		add("debezium.predicates." + alias + ".pattern")
	}
	return names
}
