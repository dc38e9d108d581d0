package importer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// readYAML reads Debezium Server's application.yaml: nested names are joined by dots, a list by commas, and the key ~ is
// the value of the name above it, which has further names below.
func readYAML(name string, content []byte) (layer, error) {
	var root yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(content, &root, yaml.UseOrderedMap()); err != nil {
		return layer{}, errors.New("is not YAML") // the library quotes lines, which may hold a password
	}
	l := layer{form: formYAML, file: name}
	if err := flatten(&l, "", root); err != nil {
		return layer{}, err
	}
	for _, p := range l.pairs {
		if bare := afterProfile(p.name); strings.HasPrefix(bare, "debezium.") || strings.HasPrefix(bare, "quarkus.") {
			return l, nil
		}
		if p.name == "kind" && p.text == "KafkaConnector" {
			return layer{}, errors.New("is a KafkaConnector of Kubernetes; give its spec.config as JSON, with connector.class from spec.class")
		}
	}
	return layer{}, errors.New("has no name that begins with debezium.: it configures no Debezium Server")
}

func flatten(l *layer, prefix string, v any) error {
	switch v := v.(type) {
	case nil: // a name without a value is not set
	case yaml.MapSlice:
		for _, item := range v {
			name := prefix
			if key := yamlText(item.Key); item.Key != nil && key != "null" { // ~ is null, which the library gives as its name
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
		l.pairs = append(l.pairs, pair{name: prefix, text: strings.Join(items, ",")})
	default:
		l.pairs = append(l.pairs, pair{name: prefix, text: yamlText(v)})
	}
	return nil
}

func yamlText(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
