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
	all := set.once(l)
	names := variableNames(set.known, all, below)
	var out []setting
	var others []string
	for _, s := range all {
		variables[s.name] = s.text
		upper := strings.ToUpper(s.name)
		if !read.IsPropertyVariable(s.name) {
			others = append(others, s.name)
			continue
		}
		name, known := names[upper]
		switch {
		case strings.Contains(s.name, "."):
			// not of a shell; Compose and Kubernetes make them, and Quarkus looks for them first
			name = s.name
		case !known:
			name = strings.ToLower(strings.ReplaceAll(upper, "_", "."))
		}
		s.name = afterQuarkus(name)
		out = append(out, s)
	}
	if len(others) > 0 {
		slices.Sort(others)
		set.note(output.Superseded, strings.Join(others, ", "), l.File, "", "no properties of Debezium's; references to them are followed")
	}
	return out
}

// variableNames are the properties by the names of their variables: those that a file below has,
// and those that the rules know.
func variableNames(known []string, variables, below []setting) map[string]string {
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
	for _, s := range variables {
		switch read.VariableOf(s.name) {
		case "DEBEZIUM_TRANSFORMS":
			transforms = s.text
		case "DEBEZIUM_PREDICATES":
			predicates = s.text
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
