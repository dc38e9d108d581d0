// Files of lines name=value: .properties and environments.

package read

import (
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

var assignment = regexp.MustCompile(`^\s*(export\s+)?[A-Za-z_][A-Za-z0-9_]*=`)

// IsEnvironment is true when the first assignment of the file looks like one of a shell and has no
// dot in its name.
func IsEnvironment(content []byte) bool {
	for line := range strings.Lines(string(content)) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			return assignment.MatchString(text)
		}
	}
	return false
}

// readProperties reads a .properties file: Debezium Server's, when a name begins as its names do,
// else a connector's of Connect standalone. Java reads the first as UTF-8, the second as Latin 1.
func readProperties(name string, content []byte) (File, error) {
	pairs, err := ParseProperties(content, properties.UTF8)
	if err != nil {
		return File{}, err
	}
	for _, p := range pairs {
		if bare := afterProfile(p.Name); strings.HasPrefix(bare, "debezium.") || strings.HasPrefix(bare, "quarkus.") {
			if !utf8.Valid(content) {
				return File{}, errors.New("is not UTF-8")
			}
			return File{Form: Properties, File: name, Pairs: pairs}, nil
		}
	}
	if pairs, err = ParseProperties(content, properties.ISO_8859_1); err != nil {
		return File{}, err
	}
	l := File{Form: Connect, File: name, Pairs: pairs}
	if _, ok := l.Get("connector.class"); !ok {
		if _, worker := l.Get("bootstrap.servers"); worker {
			return File{}, errors.New("is the configuration of a Connect worker; give it with --worker-config beside the connector's file")
		}
		return File{}, errors.New("has neither connector.class nor a name that begins with debezium.: it configures no Debezium")
	}
	return l, nil
}

// ParseProperties reads a .properties file and leaves references as they are. Its error quotes
// nothing of the file.
func ParseProperties(content []byte, encoding properties.Encoding) ([]Pair, error) {
	loader := properties.Loader{Encoding: encoding, DisableExpansion: true}
	read, err := loader.LoadBytes(content)
	if err != nil {
		// the library quotes the line, which may hold a password
		return nil, errors.New("is not a .properties file")
	}
	var pairs []Pair
	for _, key := range read.Keys() {
		text, _ := read.Get(key)
		pairs = append(pairs, Pair{Name: key, Text: text})
	}
	return pairs, nil
}

// ReadEnvironment reads NAME=value lines as `env`, an env file of Docker or Compose, and `export`
// in a shell have them.
func ReadEnvironment(name string, content []byte) (File, error) {
	l := File{Form: Environment, File: name}
	for line := range strings.Lines(string(content)) {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' || !assignment.MatchString(text) {
			continue // the rest of a value of several lines, which no property of Debezium has
		}
		variable, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(text, "export ")), "=")
		l.Pairs = append(l.Pairs, Pair{Name: variable, Text: unquote(value)})
	}
	return l, nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
