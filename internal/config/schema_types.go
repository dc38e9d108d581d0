// JSON Schemas of the types of keys.

package config

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/docs"
)

// jsonSchema describes a value. Every kind of field has one next to the function that reads it. The
// schema accepts everything that the function accepts, and refuses what is wrong before ${...} is
// replaced. It uses only keywords that mean the same in older drafts, which many editors read.
type jsonSchema = map[string]any

// plainTypes are the types that YAML may see in a text that is not quoted; the loader takes the
// text as it is written.
var plainTypes = []string{"string", "number", "boolean"}

func anyText() jsonSchema { return jsonSchema{"type": plainTypes} }

// reference is a text that says something only when ${...} is replaced.
func reference() jsonSchema { return jsonSchema{"type": "string", "pattern": `\$\{`} }

func anyOf(forms ...jsonSchema) jsonSchema { return jsonSchema{"anyOf": forms} }

// orNothing also accepts a key without a value, which counts as absent.
func orNothing(f jsonSchema) jsonSchema { return anyOf(f, jsonSchema{"type": "null"}) }

func oneOf(values []string) jsonSchema { return anyOf(jsonSchema{"enum": values}, reference()) }

func truth() jsonSchema {
	return anyOf(jsonSchema{"enum": []bool{true, false}}, jsonSchema{"enum": []string{"true", "false"}}, reference())
}

func wholeNumber(low, high int) jsonSchema {
	return anyOf(jsonSchema{"type": "integer", "minimum": low, "maximum": high}, jsonSchema{"type": "string", "pattern": `^[+-]?[0-9]+$`}, reference())
}

// timeSpan has the syntax of time.ParseDuration, which knows one number without a unit.
func timeSpan(low time.Duration) jsonSchema {
	const span = `^[+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	forms := []jsonSchema{{"type": "string", "pattern": span}, reference()}
	if low == 0 {
		forms = append(forms, jsonSchema{"enum": []any{0, "0"}})
	}
	return anyOf(forms...)
}

func byteCount(low, high int64) jsonSchema {
	names := make([]string, len(units))
	for i, unit := range units {
		names[i] = unit.name
	}
	return anyOf(jsonSchema{"type": "integer", "minimum": low, "maximum": high},
		jsonSchema{"type": "string", "pattern": `^\s*[+]?[0-9]+\s*(` + strings.Join(names, "|") + `)$`}, reference())
}

// listOrOne is a list of at least so many, or one value in the place of a list of one.
func listOrOne(item jsonSchema, least int) jsonSchema {
	return anyOf(item, jsonSchema{"type": "array", "items": item, "minItems": least})
}

// columnNames is a name, "" for none, or a list of names.
func columnNames() jsonSchema {
	return anyOf(anyText(), jsonSchema{"type": "array", "items": jsonSchema{"type": plainTypes, "minLength": 1}, "uniqueItems": true})
}

// namedColumns maps names of a certain form to one column each.
func namedColumns(names jsonSchema) jsonSchema {
	return jsonSchema{"type": "object", "propertyNames": names, "additionalProperties": jsonSchema{"type": plainTypes, "minLength": 1}}
}

// tableList is names of tables, or mappings of a name and keys of the section outbox for this table
// alone.
func tableList() jsonSchema {
	keys := jsonSchema{"name": jsonSchema{"type": plainTypes, "minLength": 1, "description": "name or schema.name"}}
	for _, f := range outboxFields {
		if _, name, _ := cutLast(f.path); name != "headers" {
			keys[name] = described(f.path, orNothing(f.form))
		}
	}
	name := jsonSchema{"type": plainTypes, "minLength": 1}
	table := jsonSchema{"type": "object", "properties": keys, "required": []string{"name"}, "additionalProperties": false}
	return anyOf(name, jsonSchema{"type": "array", "items": anyOf(name, table)})
}

func described(path string, value jsonSchema) jsonSchema {
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
