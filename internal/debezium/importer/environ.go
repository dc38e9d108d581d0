package importer

import (
	"slices"
	"strings"
)

// This file finds the properties that variables of the environment stand for. Their names have lost the dots, the dashes and
// the capitals: SINK_RABBITMQ_ROUTINGKEY_SOURCE is routingKey.source only for who knows that name.

// environment takes Debezium's variables of one layer; the others go to variables, for references to them.
func (set *settings) environment(l layer, below []setting, variables map[string]string) []setting {
	pairs, dropped := l.unique()
	for _, name := range dropped {
		set.note(Superseded, name, l.file, "", "given again further down")
	}
	names := variableNames(set.known, pairs, below)
	var out []setting
	var others []string
	for _, p := range pairs {
		variables[p.name] = p.text
		upper := strings.ToUpper(p.name)
		if !isPropertyVariable(p.name) {
			others = append(others, p.name)
			continue
		}
		name, known := names[upper]
		switch {
		case strings.Contains(p.name, "."): // not of a shell; Compose and Kubernetes make them, and Quarkus looks for them first
			name = p.name
		case !known:
			name = strings.ToLower(strings.ReplaceAll(upper, "_", "."))
		}
		out = append(out, setting{name: afterQuarkus(name), written: p.name, file: l.file, text: p.text})
	}
	if len(others) > 0 {
		slices.Sort(others)
		set.note(Superseded, strings.Join(others, ", "), l.file, "", "no properties of Debezium's; references to them are followed")
	}
	return out
}

// variableNames are the properties by the names of their variables: those that a file below has, and those that the rules know.
func variableNames(known []string, pairs []pair, below []setting) map[string]string {
	names := map[string]string{}
	transforms, predicates := "", ""
	for _, s := range below {
		names[variableOf(s.name)] = s.name
		switch s.name {
		case "debezium.transforms":
			transforms = s.text
		case "debezium.predicates":
			predicates = s.text
		}
	}
	for _, p := range pairs {
		switch variableOf(p.name) {
		case "DEBEZIUM_TRANSFORMS":
			transforms = p.text
		case "DEBEZIUM_PREDICATES":
			predicates = p.text
		}
	}
	add := func(name string) {
		if _, taken := names[variableOf(name)]; !taken {
			names[variableOf(name)] = name
		}
	}
	for _, name := range known {
		option, router := strings.CutPrefix(name, "router.")
		switch {
		case strings.Contains(name, "*"):
		case router:
			for _, alias := range splitList(transforms) {
				add("debezium.transforms." + alias + "." + option)
			}
		default:
			add(serverName(name))
		}
	}
	for _, alias := range splitList(predicates) {
		add("debezium.predicates." + alias + ".type")
		add("debezium.predicates." + alias + ".pattern")
	}
	return names
}

// splitList splits at commas and trims, as Connect does.
func splitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
