package importer

import (
	"bytes"
	"errors"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

// This file finds out what form a file has, and reads those that are lines of name=value.

// wrapping begins a line of what another tool reads, a resource of Kubernetes or a compose file.
var wrapping = regexp.MustCompile(`(?m)^(apiVersion|kind|services):`)

var assignment = regexp.MustCompile(`^\s*(export\s+)?[A-Za-z_][A-Za-z0-9_]*=`)

// readLayer takes the form from the content, and from the name only where YAML and .properties look alike.
func readLayer(f Input) (layer, error) {
	content := bytes.TrimPrefix(f.Content, []byte("\xef\xbb\xbf"))
	ext := strings.ToLower(path.Ext(f.Name))
	if bytes.ContainsRune(content, 0) || ext != ".properties" && !utf8.Valid(content) {
		return layer{}, errors.New("is not text in UTF-8")
	}
	trimmed := bytes.TrimSpace(content)
	switch {
	case len(trimmed) == 0:
		return layer{}, errors.New("is empty")
	case trimmed[0] == '{' || trimmed[0] == '[':
		return readJSON(f.Name, trimmed)
	case ext == ".yaml" || ext == ".yml" || ext != ".properties" && wrapping.Match(content):
		return readYAML(f.Name, content)
	case ext != ".properties" && isEnvironment(content):
		return readEnvironment(f.Name, content)
	}
	return readProperties(f.Name, content)
}

// isEnvironment is true when the first assignment of the file looks like one of a shell and has no dot in its name.
func isEnvironment(content []byte) bool {
	for line := range strings.Lines(string(content)) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			return assignment.MatchString(text)
		}
	}
	return false
}

// readProperties reads a .properties file: Debezium Server's, when a name begins as its names do, else a connector's of
// Connect standalone. Java reads the first as UTF-8, the second as Latin 1.
func readProperties(name string, content []byte) (layer, error) {
	pairs, err := parseProperties(content, properties.UTF8)
	if err != nil {
		return layer{}, err
	}
	for _, p := range pairs {
		if bare := afterProfile(p.name); strings.HasPrefix(bare, "debezium.") || strings.HasPrefix(bare, "quarkus.") {
			if !utf8.Valid(content) {
				return layer{}, errors.New("is not UTF-8")
			}
			return layer{form: formProperties, file: name, pairs: pairs}, nil
		}
	}
	if pairs, err = parseProperties(content, properties.ISO_8859_1); err != nil {
		return layer{}, err
	}
	l := layer{form: formConnect, file: name, pairs: pairs}
	if _, ok := l.get("connector.class"); !ok {
		if _, worker := l.get("bootstrap.servers"); worker {
			return layer{}, errors.New("is the configuration of a Connect worker; give it with --worker-config beside the connector's file")
		}
		return layer{}, errors.New("has neither connector.class nor a name that begins with debezium.: it configures no Debezium")
	}
	return l, nil
}

func parseProperties(content []byte, encoding properties.Encoding) ([]pair, error) {
	loader := properties.Loader{Encoding: encoding, DisableExpansion: true}
	read, err := loader.LoadBytes(content)
	if err != nil {
		return nil, errors.New("is not a .properties file") // the library quotes the line, which may hold a password
	}
	var pairs []pair
	for _, key := range read.Keys() {
		text, _ := read.Get(key)
		pairs = append(pairs, pair{name: key, text: text})
	}
	return pairs, nil
}

// readEnvironment reads NAME=value lines as `env`, an env file of Docker or Compose, and `export` in a shell have them.
func readEnvironment(name string, content []byte) (layer, error) {
	l := layer{form: formEnvironment, file: name}
	for line := range strings.Lines(string(content)) {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' || !assignment.MatchString(text) {
			continue // the rest of a value of several lines, which no property of Debezium has
		}
		variable, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(text, "export ")), "=")
		l.pairs = append(l.pairs, pair{name: variable, text: unquote(value)})
	}
	return l, nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
