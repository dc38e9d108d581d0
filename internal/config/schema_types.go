// JSON Schemas of the keys that only the configuration has, and what is said of each key.

package config

import (
	"regexp"
	"sync"

	"github.com/cdc-relay/cdc-relay/docs"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

// tableList is names of tables, or mappings of a name and keys of the section outbox for this table
// alone.
func (l *loader) tableList() setting.Form {
	keys := setting.Form{"name": setting.Form{"type": setting.PlainTypes, "minLength": 1, "description": "name or schema.name"}}
	for _, k := range l.outboxFields(new(Outbox)) {
		if _, name, _ := cutLast(k.Name); name != "headers" {
			keys[name] = described(k.Name, setting.OrNothing(k.Form))
		}
	}
	name := setting.Form{"type": setting.PlainTypes, "minLength": 1}
	table := setting.Form{"type": "object", "properties": keys, "required": []string{"name"}, "additionalProperties": false}
	return setting.AnyOf(name, setting.Form{"type": "array", "items": setting.AnyOf(name, table)})
}

func described(path string, value setting.Form) setting.Form {
	value["description"] = meanings()[path]
	return value
}

var (
	// keyRow is a row of the tables in docs/configuration.md: key, default, meaning.
	keyRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|[^|]*\\| (.*) \\|$")
	link   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// meanings is what docs/configuration.md says of each key; its links, which lead nowhere from an
// editor, as their text.
var meanings = sync.OnceValue(func() map[string]string {
	said := map[string]string{}
	for _, row := range keyRow.FindAllStringSubmatch(docs.Configuration, -1) {
		said[row[1]] = link.ReplaceAllString(row[2], "$1")
	}
	return said
})
