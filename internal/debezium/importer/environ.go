package importer

import (
	"regexp"
	"slices"
	"strings"
)

// This file finds the properties that variables of the environment stand for. Their names have lost the dots, the dashes and
// the capitals: SINK_RABBITMQ_ROUTINGKEY_SOURCE is routingKey.source only for who knows that name.

var notOfName = regexp.MustCompile(`[^A-Z0-9]`)

// variablePrefixes begin the variables that are properties. Others begin with DEBEZIUM_ too: the image has DEBEZIUM_VERSION, its
// start script reads DEBEZIUM_OPTS, and Kubernetes puts DEBEZIUM_SERVICE_HOST, DEBEZIUM_PORT and more into each container beside
// a service of this name.
var variablePrefixes = []string{
	"DEBEZIUM_SOURCE_", "DEBEZIUM_SINK_", "DEBEZIUM_FORMAT_", "DEBEZIUM_TRANSFORMS", "DEBEZIUM_PREDICATES", "DEBEZIUM_API_", "QUARKUS_",
}

// isPropertyVariable is true of a variable that is a property of Debezium Server's.
func isPropertyVariable(name string) bool {
	upper := variableOf(name)
	return slices.ContainsFunc(variablePrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) })
}

// variableOf is a property's name as a variable's.
func variableOf(name string) string { return notOfName.ReplaceAllString(strings.ToUpper(name), "_") }

// environment takes Debezium's variables of one layer; the others go to variables, for references to them.
func (b *builder) environment(l layer, below []setting, variables map[string]string) []setting {
	pairs, dropped := l.unique()
	for _, name := range dropped {
		b.note(Superseded, name, l.file, "", "given again further down")
	}
	names := variableNames(pairs, below)
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
		b.note(Superseded, strings.Join(others, ", "), l.file, "", "no properties of Debezium's; references to them are followed")
	}
	return out
}

// variableNames are the properties by the names of their variables: those that a file below has, and those that the rules know.
func variableNames(pairs []pair, below []setting) map[string]string {
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
	for _, r := range rules {
		for _, name := range r.names {
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
