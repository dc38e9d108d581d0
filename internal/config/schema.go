// The JSON Schema of the configuration file.

package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// Schema writes a JSON Schema of the configuration file, for editors. It is made of the same list
// of keys that Load reads, with their descriptions.
func Schema(w io.Writer) error {
	root := section("")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "cdc-relay configuration"
	l := newLoader(nil)
	l.assign()
	for _, k := range l.fields() {
		parent, name, _ := cutLast(k.Name)
		value := setting.OrNothing(k.Form)
		if parent != "sink" { // naming a sink chooses it: its section has no default
			if err := addDefault(value, k.Show()); err != nil {
				return fmt.Errorf("read default of %s: %w", k.Name, err)
			}
		}
		keysOf(root, parent)[name] = described(&k, value)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(root)
}

// section is the schema of a mapping of keys.
func section(path string) setting.Form {
	s := setting.Form{"type": []string{"object", "null"}, "properties": setting.Form{}, "additionalProperties": false}
	if path == "sink" {
		var pairs []setting.Form // one or none: a variable may name it
		for i, d := range drivers.All {
			for _, other := range drivers.All[i+1:] {
				pairs = append(pairs, setting.Form{"required": []string{d.Name, other.Name}})
			}
		}
		s["not"] = setting.AnyOf(append(pairs, setting.Form{"type": "null"})...)
	}
	if emptyFault(path) != "" {
		s["minProperties"] = 1
	}
	return s
}

// keysOf is the properties of the section at path, which is made where it is missing.
func keysOf(root setting.Form, path string) setting.Form {
	keys, at := root["properties"].(setting.Form), ""
	for name := range strings.SplitSeq(path, ".") {
		at = join(at, name)
		if keys[name] == nil {
			keys[name] = section(at)
		}
		keys = keys[name].(setting.Form)["properties"].(setting.Form)
	}
	return keys
}

// addDefault parses a default as `config print` shows it, so that it has its type; "": the key has
// none.
func addDefault(into setting.Form, shown string) error {
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

// tableList is names of tables, or mappings of a name and keys of the section outbox for this table
// alone.
func (l *loader) tableList() setting.Form {
	keys := setting.Form{"name": setting.Form{"type": setting.PlainTypes, "minLength": 1, "description": "name or schema.name"}}
	for _, k := range l.outboxFields(new(Outbox)) {
		if _, name, _ := cutLast(k.Name); name != "headers" {
			keys[name] = described(&k, setting.OrNothing(k.Form))
		}
	}
	name := setting.Form{"type": setting.PlainTypes, "minLength": 1}
	table := setting.Form{"type": "object", "properties": keys, "required": []string{"name"}, "additionalProperties": false}
	return setting.AnyOf(name, setting.Form{"type": "array", "items": setting.AnyOf(name, table)})
}

// link is a link of Markdown. It leads nowhere from an editor, which shows its text.
var link = lazy.Regexp(`\[([^\]]*)\]\([^)]*\)`)

func described(k *setting.Key, value setting.Form) setting.Form {
	value["description"] = link().ReplaceAllString(strings.TrimSpace(summary(k)+" "+k.More), "$1")
	return value
}

// summary is what a key does and which values it takes.
func summary(k *setting.Key) string {
	if k.Values == "" {
		return k.Does
	}
	return k.Does + " " + k.Values + "."
}
