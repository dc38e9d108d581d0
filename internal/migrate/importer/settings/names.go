// The names of Debezium Server's properties, and what the rules call them.

package settings

import "strings"

// afterQuarkus gives names of the engine's own extension, which 3.7 knows in addition to the old
// ones, their old name.
func afterQuarkus(name string) string {
	if rest, ok := strings.CutPrefix(name, "quarkus.debezium."); ok {
		return "debezium.source." + rest
	}
	return name
}

// serverPrefixes are the names of Debezium Server and what the rules call them; the first that fits
// counts.
var serverPrefixes = []struct{ server, rule string }{
	{"debezium.sink.kafka.producer.", "producer."},
	{"debezium.source.", ""},
	{"debezium.sink.", "sink."},
	{"debezium.format.", "format."},
	{"debezium.transforms", "transforms"},
	{"debezium.predicates", "predicates"},
}

// serverless is the name that the rules have for one of Debezium Server's.
func serverless(name string) string {
	for _, p := range serverPrefixes {
		if rest, ok := strings.CutPrefix(name, p.server); ok {
			return p.rule + rest
		}
	}
	if strings.HasPrefix(name, "debezium.") || strings.HasPrefix(name, "quarkus.") {
		return name
	}
	return "other." + name
}

// ServerName is the way back.
func ServerName(name string) string {
	for _, p := range serverPrefixes {
		if rest, ok := strings.CutPrefix(name, p.rule); ok && p.rule != "" {
			return p.server + rest
		}
	}
	if strings.HasPrefix(name, "debezium.") || strings.HasPrefix(name, "quarkus.") {
		return name
	}
	return "debezium.source." + name
}

func inFile(file, same string) string {
	if file == same {
		return ""
	}
	return " in " + file
}

// SplitList splits at commas and trims, as Connect does.
func SplitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
