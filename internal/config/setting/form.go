// JSON Schemas of the types of keys.

package setting

import (
	"strings"
	"time"
)

// Form describes a value. Every kind of field has one next to the function that reads it. The
// schema accepts everything that the function accepts, and refuses what is wrong before ${...} is
// replaced. It uses only keywords that mean the same in older drafts, which many editors read.
type Form = map[string]any

// PlainTypes are the types that YAML may see in a text that is not quoted; the loader takes the
// text as it is written.
var PlainTypes = []string{"string", "number", "boolean"}

// AnyText is a single value.
func AnyText() Form { return Form{"type": PlainTypes} }

// reference is a text that says something only when ${...} is replaced.
func reference() Form { return Form{"type": "string", "pattern": `\$\{`} }

// AnyOf is one of several forms.
func AnyOf(forms ...Form) Form { return Form{"anyOf": forms} }

// OrNothing also accepts a key without a value, which counts as absent.
func OrNothing(f Form) Form { return AnyOf(f, Form{"type": "null"}) }

func oneOf(values []string) Form { return AnyOf(Form{"enum": values}, reference()) }

func truth() Form {
	return AnyOf(Form{"enum": []bool{true, false}}, Form{"enum": []string{"true", "false"}}, reference())
}

func wholeNumber(low, high int) Form {
	return AnyOf(Form{"type": "integer", "minimum": low, "maximum": high}, Form{"type": "string", "pattern": `^[+-]?[0-9]+$`}, reference())
}

// timeSpan has the syntax of time.ParseDuration, which knows one number without a unit.
func timeSpan(low time.Duration) Form {
	const span = `^[+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	forms := []Form{{"type": "string", "pattern": span}, reference()}
	if low == 0 {
		forms = append(forms, Form{"enum": []any{0, "0"}})
	}
	return AnyOf(forms...)
}

func byteCount(low, high int64) Form {
	names := make([]string, len(units))
	for i, unit := range units {
		names[i] = unit.name
	}
	return AnyOf(Form{"type": "integer", "minimum": low, "maximum": high},
		Form{"type": "string", "pattern": `^\s*[+]?[0-9]+\s*(` + strings.Join(names, "|") + `)$`}, reference())
}

// ListOrOne is a list of at least so many, or one value in the place of a list of one.
func ListOrOne(item Form, least int) Form {
	return AnyOf(item, Form{"type": "array", "items": item, "minItems": least})
}

// NamedColumns maps names of a certain form to one column each.
func NamedColumns(names Form) Form {
	return Form{"type": "object", "propertyNames": names, "additionalProperties": Form{"type": PlainTypes, "minLength": 1}}
}
