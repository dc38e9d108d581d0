// JSON Schemas of the keys that only the configuration has, and what is said of each key.

package config

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

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
