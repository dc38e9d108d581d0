// YAML: Debezium Server's application.yaml, or a resource or compose file that holds it.

package read

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// readYAML reads what has Debezium Server's configuration in YAML: its own file, a resource of
// Kubernetes, a compose file.
func readYAML(name string, content []byte) (File, error) {
	documents, err := yamlDocuments(content)
	if err != nil {
		return File{}, err
	}
	for _, read := range []func(string, []yaml.MapSlice) (*File, error){readResource, readCompose} {
		if l, err := read(name, documents); err != nil {
			return File{}, err
		} else if l != nil {
			return *l, nil
		}
	}
	return readApplication(name, documents)
}

// documentMark begins a document. The library takes an empty one for the end of the file, so they
// are parted here.
var documentMark = regexp.MustCompile(`(?m)^---(?:[ \t]|\r?$)`)

// yamlDocuments are those of a file that hold anything.
func yamlDocuments(content []byte) (documents []yaml.MapSlice, err error) {
	for _, text := range documentMark.Split(string(content), -1) {
		var root yaml.MapSlice
		if err := yaml.UnmarshalWithOptions([]byte(text), &root, yaml.UseOrderedMap()); err != nil {
			// the library quotes lines, which may hold a password
			return nil, errors.New("is not YAML")
		}
		if len(root) > 0 {
			documents = append(documents, root)
		}
	}
	return documents, nil
}

// readApplication reads application.yaml: nested names are joined by dots, a list by commas, and
// the key ~ is the value of the name above it, which has further names below. Of several documents
// the later one wins.
func readApplication(name string, documents []yaml.MapSlice) (File, error) {
	l := File{Form: YAML, File: name}
	for _, root := range documents {
		if err := flatten(&l, "", root); err != nil {
			return File{}, err
		}
	}
	for _, p := range l.Pairs {
		if bare := afterProfile(p.Name); strings.HasPrefix(bare, "debezium.") || strings.HasPrefix(bare, "quarkus.") {
			return l, nil
		}
	}
	return File{}, errors.New("has no name that begins with debezium.: it configures no Debezium Server")
}

func flatten(l *File, prefix string, v any) error {
	switch v := v.(type) {
	case nil: // a name without a value is not set
	case yaml.MapSlice:
		for _, item := range v {
			name := prefix
			// ~ is null, which the library gives as its name
			if key := yamlText(item.Key); item.Key != nil && key != "null" {
				name = strings.TrimPrefix(prefix+"."+key, ".")
			}
			if err := flatten(l, name, item.Value); err != nil {
				return err
			}
		}
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			switch item.(type) {
			case yaml.MapSlice, []any:
				return fmt.Errorf("%s is a list of something else than single values", prefix)
			}
			items[i] = yamlText(item)
		}
		l.Pairs = append(l.Pairs, Pair{Name: prefix, Text: strings.Join(items, ",")})
	default:
		l.Pairs = append(l.Pairs, Pair{Name: prefix, Text: yamlText(v)})
	}
	return nil
}
