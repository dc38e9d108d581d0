package config

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/docs"
)

// form is what a JSON Schema says of a value. Every kind of field has one beside the function that reads it. It takes
// all that this function takes, and refuses what it can see to be wrong: what is written in the file, before ${...} is
// replaced. It uses no keyword that older drafts, which many editors read, understand otherwise.
type form = map[string]any

// plainTypes are the types that YAML may see in a text that is not quoted; the loader takes the text as it is written.
var plainTypes = []string{"string", "number", "boolean"}

func anyText() form { return form{"type": plainTypes} }

// reference is a text that says something only when ${...} is replaced.
func reference() form { return form{"type": "string", "pattern": `\$\{`} }

func anyOf(forms ...form) form { return form{"anyOf": forms} }

// orNothing lets a key stand without a value, which is as if it did not.
func orNothing(f form) form { return anyOf(f, form{"type": "null"}) }

func oneOf(values []string) form { return anyOf(form{"enum": values}, reference()) }

func truth() form {
	return anyOf(form{"enum": []bool{true, false}}, form{"enum": []string{"true", "false"}}, reference())
}

func wholeNumber(low, high int) form {
	return anyOf(form{"type": "integer", "minimum": low, "maximum": high}, form{"type": "string", "pattern": `^[+-]?[0-9]+$`}, reference())
}

// timeSpan has the syntax of time.ParseDuration, which knows one number without a unit.
func timeSpan(low time.Duration) form {
	const span = `^[+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	forms := []form{{"type": "string", "pattern": span}, reference()}
	if low == 0 {
		forms = append(forms, form{"enum": []any{0, "0"}})
	}
	return anyOf(forms...)
}

func byteCount(low, high int64) form {
	names := make([]string, len(units))
	for i, unit := range units {
		names[i] = unit.name
	}
	return anyOf(form{"type": "integer", "minimum": low, "maximum": high},
		form{"type": "string", "pattern": `^\s*[+]?[0-9]+\s*(` + strings.Join(names, "|") + `)$`}, reference())
}

// listOrOne is a list of at least so many, or one value in the place of a list of one.
func listOrOne(item form, least int) form {
	return anyOf(item, form{"type": "array", "items": item, "minItems": least})
}

// columnNames is a name, "" for none, or a list of names.
func columnNames() form {
	return anyOf(anyText(), form{"type": "array", "items": form{"type": plainTypes, "minLength": 1}, "uniqueItems": true})
}

// namedColumns maps names of a certain form to one column each.
func namedColumns(names form) form {
	return form{"type": "object", "propertyNames": names, "additionalProperties": form{"type": plainTypes, "minLength": 1}}
}

// tableList is names of tables, or mappings of a name and keys of the section outbox for this table alone.
func tableList() form {
	keys := form{"name": form{"type": plainTypes, "minLength": 1, "description": "name or schema.name"}}
	for _, f := range outboxFields {
		if _, name, _ := cutLast(f.path); name != "headers" {
			keys[name] = described(f.path, orNothing(f.form))
		}
	}
	name := form{"type": plainTypes, "minLength": 1}
	table := form{"type": "object", "properties": keys, "required": []string{"name"}, "additionalProperties": false}
	return anyOf(name, form{"type": "array", "items": anyOf(name, table)})
}

func described(path string, value form) form {
	value["description"] = meanings()[path]
	return value
}

var (
	// keyRow is a row of the tables in docs/configuration.md: key, default, meaning.
	keyRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|[^|]*\\| (.*) \\|$")
	link   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// meanings is what docs/configuration.md says of each key; its links, which lead nowhere from an editor, as their text.
var meanings = sync.OnceValue(func() map[string]string {
	said := map[string]string{}
	for _, row := range keyRow.FindAllStringSubmatch(docs.Configuration, -1) {
		said[row[1]] = link.ReplaceAllString(row[2], "$1")
	}
	return said
})
