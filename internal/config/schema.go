// The JSON Schema of the configuration file.

package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
)

// Schema writes a JSON Schema of the configuration file, for editors. It is made of the same list
// of keys that Load reads; the descriptions are those of docs/configuration.md.
func Schema(w io.Writer) error {
	root := section("")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "cdc-relay configuration"
	l := newLoader(nil)
	l.assign()
	for _, f := range fields {
		parent, name, _ := cutLast(f.path)
		value := orNothing(f.form)
		if f.path != "sink.stdout" { // there is no sink but the one that is named
			if err := addDefault(value, f.show(l.cfg)); err != nil {
				return fmt.Errorf("read default of %s: %w", f.path, err)
			}
		}
		keysOf(root, parent)[name] = described(f.path, value)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(root)
}

// section is the schema of a mapping of keys.
func section(path string) jsonSchema {
	s := jsonSchema{"type": []string{"object", "null"}, "properties": jsonSchema{}, "additionalProperties": false}
	switch path {
	case "sink":
		var pairs []jsonSchema // one or none: a variable may name it
		for _, two := range [][]string{{"rabbitmq", "kafka"}, {"rabbitmq", "stdout"}, {"kafka", "stdout"}} {
			pairs = append(pairs, jsonSchema{"required": two})
		}
		s["not"] = anyOf(append(pairs, jsonSchema{"type": "null"})...)
	case "sink.kafka.tls":
		s["minProperties"] = 1
	}
	return s
}

// keysOf is the properties of the section at path, which is made where it is missing.
func keysOf(root jsonSchema, path string) jsonSchema {
	keys, at := root["properties"].(jsonSchema), ""
	for name := range strings.SplitSeq(path, ".") {
		at = join(at, name)
		if keys[name] == nil {
			keys[name] = section(at)
		}
		keys = keys[name].(jsonSchema)["properties"].(jsonSchema)
	}
	return keys
}

// addDefault takes the default as `config print` shows it; a value that is not stated has none.
func addDefault(into jsonSchema, shown string) error {
	if shown == "" {
		return nil
	}
	var value any
	if err := yaml.Unmarshal([]byte(shown), &value); err != nil {
		return err
	}
	into["default"] = value
	return nil
}
