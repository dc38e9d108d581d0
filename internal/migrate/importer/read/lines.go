// Files of lines name=value: .properties and environments.

package read

import (
	"errors"
	"slices"
	"strings"

	"github.com/magiconair/properties"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

var assignment = lazy.Regexp(`^\s*(export\s+)?[A-Za-z_][A-Za-z0-9_]*=`)

// isEnvironment is true when the first assignment of the file looks like one of a shell and has no
// dot in its name.
func isEnvironment(content []byte) bool {
	for line := range strings.Lines(string(content)) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			return assignment().MatchString(text)
		}
	}
	return false
}

// readProperties reads a .properties file: Debezium Server's, when a name begins as its names do,
// else a connector's of Connect standalone. Java reads the first as UTF-8, the second as Latin 1.
func readProperties(name string, content []byte) (File, error) {
	l, err := load(name, content, properties.UTF8)
	switch {
	case err != nil:
		return File{}, err
	case slices.ContainsFunc(l.Pairs, func(p Pair) bool {
		return strings.HasPrefix(p.Name, "debezium.") || strings.HasPrefix(p.Name, "quarkus.")
	}):
		l.Form = Properties
		return l, nil
	case l.Has("connector.class"):
		return Worker(Input{Name: name, Content: content})
	case l.Has("bootstrap.servers"):
		return File{}, errors.New("is the configuration of a Connect worker; give it with --worker-config beside the connector's file")
	}
	return File{}, errors.New("has neither connector.class nor a name that begins with debezium.: it configures no Debezium")
}

// Worker reads a .properties file of Kafka Connect.
func Worker(f Input) (File, error) { return load(f.Name, f.Content, properties.ISO_8859_1) }

// load leaves references as they are. Its error quotes nothing of the file.
func load(name string, content []byte, encoding properties.Encoding) (File, error) {
	l := File{Form: Connect, File: name}
	loader := properties.Loader{Encoding: encoding, DisableExpansion: true}
	read, err := loader.LoadBytes(content)
	if err != nil {
		// the library quotes the line, which may hold a password
		return l, errors.New("is not a .properties file")
	}
	for _, key := range read.Keys() {
		text, _ := read.Get(key)
		l.Pairs = append(l.Pairs, Pair{Name: key, Text: text})
	}
	return l, nil
}

// readEnvironment reads NAME=value lines as `env`, an env file of Docker or Compose, and `export`
// in a shell have them.
func readEnvironment(name string, content []byte) File {
	l := File{Form: Environment, File: name}
	for line := range strings.Lines(string(content)) {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' || !assignment().MatchString(text) {
			continue // the rest of a value of several lines, which no property of Debezium has
		}
		variable, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(text, "export ")), "=")
		l.Pairs = append(l.Pairs, Pair{Name: variable, Text: unquote(value)})
	}
	return l
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

var notOfName = lazy.Regexp(`[^A-Z0-9]`)

// variablePrefixes begin the variables that are properties. Others begin with DEBEZIUM_ too: the
// image has DEBEZIUM_VERSION, its start script reads DEBEZIUM_OPTS, and Kubernetes puts
// DEBEZIUM_SERVICE_HOST, DEBEZIUM_PORT and more into each container next to a service of this name.
var variablePrefixes = []string{
	"DEBEZIUM_SOURCE_", "DEBEZIUM_SINK_", "DEBEZIUM_FORMAT_", "DEBEZIUM_TRANSFORMS", "DEBEZIUM_PREDICATES", "DEBEZIUM_API_", "QUARKUS_",
}

// IsPropertyVariable is true of a variable that is a property of Debezium Server's.
func IsPropertyVariable(name string) bool {
	upper := VariableOf(name)
	return slices.ContainsFunc(variablePrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) })
}

// VariableOf is a property's name as a variable's.
func VariableOf(name string) string { return notOfName().ReplaceAllString(strings.ToUpper(name), "_") }
