// Package setting has the types of configuration keys: how each is read, checked, printed and
// described. The configuration's own sections and those of sinks are made of them.
package setting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key is one key of a section, with the place its value is read into.
type Key struct {
	Name string // below the section; with dots for a section in it
	Kind Kind   // of the value when it comes from a variable
	// Set reads n, the value of the key at path, and reports what is wrong with it.
	Set  func(r *Reader, path string, n *Node)
	Show func() string // the value as YAML on one line
	Form Form          // what `config schema` says of the value

	// Does and More describe the key: see Doc.
	Does, More string
	// Values are those that the key takes, or their range; "": Does and More say what matters.
	Values string

	// The rest is optional.

	// FromVariable is the value in the text of a variable; nil: it is read as one of Kind.
	FromVariable func(variable, text string) *Node
	// Applies is false for a key that other settings replace; it is not printed then.
	Applies func() bool
	// Secrets are the secrets in the value, which Show replaces all by the same text.
	Secrets func() []Secret
	// Replaced says that a profile (sink.compat) makes this in its own way: the key is refused.
	Replaced bool
	// SectionFault says why the key's section must not be empty.
	SectionFault string
}

// Doc is the key with its description, which `config schema` and docs/configuration.md have: what
// the key does, in one short sentence that fits into the page's table, and whatever else its reader
// may need. Both are Markdown, with links as they are written in docs/.
func (k Key) Doc(does string, more ...string) Key {
	k.Does, k.More = does, strings.Join(more, " ")
	return k
}

// of is the key with the values that it takes.
func (k Key) of(values string) Key {
	k.Values = values
	return k
}

// Single is a key of a single value that parse understands.
func Single[T any](name string, form Form, at *T, parse func(string) (T, error), show func(T) string) Key {
	return Key{
		Name: name, Kind: Scalar, Form: form,
		Set: func(r *Reader, path string, n *Node) {
			written, ok := r.Scalar(path, n)
			if !ok {
				return
			}
			value, err := parse(written)
			if err != nil {
				r.Fault(n.Where, path, err.Error())
				return
			}
			*at = value
		},
		Show: func() string { return show(*at) },
	}
}

// Text is a key of any text.
func Text(name string, at *string) Key {
	return Single(name, AnyText(), at, func(s string) (string, error) { return s, nil }, Quote)
}

// Choice is one of some values; a first one of "" stands for none of them, and is not named.
func Choice(name string, at *string, values ...string) Key {
	return Single(name, oneOf(values), at, func(s string) (string, error) {
		if slices.Contains(values, s) {
			return s, nil
		}
		return "", fmt.Errorf("is %q, want one of %s", s, strings.TrimPrefix(strings.Join(values, ", "), ", "))
	}, Quote).of(choices(values))
}

// choices are the values in a sentence, without one of "".
func choices(values []string) string {
	var named []string
	for _, v := range values {
		if v != "" {
			named = append(named, "`"+v+"`")
		}
	}
	last := len(named) - 1
	return strings.Join(named[:last], ", ") + " or " + named[last]
}

// Choices is a list of some of the values, or one of them.
func Choices(name string, at *[]string, values []string) Key {
	return Texts(name, at, oneOf(values), "", func(s string) error {
		if slices.Contains(values, s) {
			return nil
		}
		return fmt.Errorf("has %q, which is none of %s", s, strings.Join(values, ", "))
	})
}

// Texts is a list of texts, or one in the place of a list of one; check refuses one of them, form
// describes one, and none is the fault of an empty list, unless it is "".
func Texts(name string, at *[]string, form Form, none string, check func(string) error) Key {
	return Key{
		Name: name, Kind: List, Form: ListOrOne(form, min(1, len(none))),
		Set: func(r *Reader, path string, n *Node) {
			read := []string{}
			for _, item := range n.Values() {
				text, ok := r.Scalar(path, item)
				if !ok {
					continue
				}
				if err := check(text); err != nil {
					r.Fault(item.Where, path, err.Error())
					continue
				}
				read = append(read, text)
			}
			if len(n.Values()) == 0 && none != "" {
				r.Fault(n.Where, path, none)
			}
			if len(read) == len(n.Values()) { // what follows from the others is no fault of its own
				*at = read
			}
		},
		Show: func() string { return InlineList(*at, Quote) },
	}
}

// Boolean is true or false.
func Boolean(name string, at *bool) Key {
	return Single(name, truth(), at, func(s string) (bool, error) {
		if s != "true" && s != "false" {
			return false, fmt.Errorf("is %q, want true or false", s)
		}
		return s == "true", nil
	}, strconv.FormatBool)
}

// Integer is a whole number from low to high.
func Integer(name string, low, high int, at *int) Key {
	return Single(name, wholeNumber(low, high), at, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("is %q, want a whole number from %d to %d", s, low, high)
		}
		return n, nil
	}, strconv.Itoa).of(fmt.Sprintf("%d to %d", low, high))
}

// Duration is a time span from low to high.
func Duration(name string, low, high time.Duration, at *time.Duration) Key {
	return Single(name, timeSpan(low), at, func(s string) (time.Duration, error) {
		d, err := ParseDuration(s)
		if err != nil || d < low || d > high {
			return 0, fmt.Errorf("is %q, want a duration with its unit from %s to %s, such as 20s", s, ShowDuration(low), ShowDuration(high))
		}
		return d, nil
	}, ShowDuration).of(ShowDuration(low) + " to " + ShowDuration(high))
}

// Size is a number of bytes from low to high.
func Size(name string, low, high int64, at *int64) Key {
	return Single(name, byteCount(low, high), at, func(s string) (int64, error) {
		n, ok := ParseSize(s)
		if !ok || n < low || n > high {
			return 0, fmt.Errorf("is %q, want bytes or a size such as 16MiB, from %s to %s", s, ShowSize(low), ShowSize(high))
		}
		return n, nil
	}, ShowSize).of(ShowSize(low) + " to " + ShowSize(high))
}

// Limit is a number of bytes from low to high, or 0 for no limit.
func Limit(name string, low, high int64, at *int64) Key {
	return Single(name, byteCount(0, high), at, func(s string) (int64, error) {
		n, ok := ParseSize(s)
		if !ok || n != 0 && n < low || n > high {
			return 0, fmt.Errorf("is %q, want 0 for no limit, or bytes or a size such as 16MiB, from %s to %s", s, ShowSize(low), ShowSize(high))
		}
		return n, nil
	}, ShowSize).of(ShowSize(low) + " to " + ShowSize(high) + ", or 0 for no limit")
}

// Password is a secret that is shown as nothing but its references.
func Password(name string, at *Secret) Key {
	k := secretKey(name, at, ShowPassword)
	k.Set = func(r *Reader, path string, n *Node) {
		if s, ok := r.password(path, n); ok {
			*at = s
		}
	}
	return k
}

// Address is an address with a password in it, which is not shown.
func Address(name string, at *Secret) Key { return secretKey(name, at, ShowAddress) }

func secretKey(name string, at *Secret, show func(text, value string) string) Key {
	return Key{
		Name: name, Kind: Scalar, Form: AnyText(),
		Set: func(r *Reader, path string, n *Node) {
			if s, ok := r.secret(path, n, show); ok {
				*at = s
			}
		},
		Show:    func() string { return QuoteSecret(*at) },
		Secrets: func() []Secret { return []Secret{*at} },
	}
}

// Addresses is a list of addresses, as Address.
func Addresses(name string, at *[]Secret) Key {
	return Key{
		Name: name, Kind: List, Form: ListOrOne(AnyText(), 1),
		Set: func(r *Reader, path string, n *Node) {
			var read []Secret
			for _, item := range n.Values() {
				if s, ok := r.secret(path, item, ShowAddress); ok {
					read = append(read, s)
				}
			}
			*at = read
		},
		Show:         func() string { return InlineList(*at, QuoteSecret) },
		Secrets:      func() []Secret { return *at },
		FromVariable: AddressesFromVariable,
	}
}

// Columns maps names, which check may refuse, to one column each; form describes a name.
func Columns(name string, at *[]NamedColumn, form Form, check func(name string) error) Key {
	return Key{
		Name: name, Kind: Mapping, Form: NamedColumns(form),
		Set:  func(r *Reader, path string, n *Node) { *at = r.Named(path, n, check) },
		Show: func() string { return showNamed(*at) },
	}
}

// Compat is a key that a profile replaces.
func Compat(k Key) Key {
	k.Replaced = true
	return k
}

// Share is a number of bytes, or a percentage of something; its zero value is neither.
type Share struct {
	Bytes   int64
	Percent int // 1 to 100; 0: Bytes counts
}

// IsSet reports whether it is one of them.
func (s Share) IsSet() bool { return s.Bytes > 0 || s.Percent > 0 }

func (s Share) String() string {
	switch {
	case s.Percent > 0:
		return strconv.Itoa(s.Percent) + "%"
	case s.Bytes > 0:
		return ShowSize(s.Bytes)
	}
	return ""
}

// SizeOrPercent is a number of bytes from low to high, a percentage from 1 to 100, or nothing.
func SizeOrPercent(name string, low, high int64, at *Share) Key {
	form := AnyOf(byteCount(low, high), Form{"type": "string", "pattern": `^\s*[0-9]+\s*%$`}, Form{"const": ""})
	return Single(name, form, at, func(s string) (Share, error) {
		if s == "" {
			return Share{}, nil
		}
		if digits, is := strings.CutSuffix(s, "%"); is {
			if n, err := strconv.Atoi(strings.TrimSpace(digits)); err == nil && n >= 1 && n <= 100 {
				return Share{Percent: n}, nil
			}
		} else if n, ok := ParseSize(s); ok && n >= low && n <= high {
			return Share{Bytes: n}, nil
		}
		return Share{}, fmt.Errorf("is %q, want a size such as 2GiB, from %s to %s, or a percentage from 1%% to 100%%", s, ShowSize(low), ShowSize(high))
	}, func(s Share) string { return Quote(s.String()) })
}

// SizeOrNone is a number of bytes from low to high, or nothing.
func SizeOrNone(name string, low, high int64, at *int64) Key {
	return Single(name, AnyOf(byteCount(low, high), Form{"const": ""}), at, func(s string) (int64, error) {
		if s == "" {
			return 0, nil
		}
		if n, ok := ParseSize(s); ok && n >= low && n <= high {
			return n, nil
		}
		return 0, fmt.Errorf("is %q, want bytes or a size such as 10GiB, from %s to %s", s, ShowSize(low), ShowSize(high))
	}, func(n int64) string {
		if n == 0 {
			return Quote("")
		}
		return ShowSize(n)
	})
}

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

// timeSpan has the syntax of ParseDuration, which knows one number without a unit.
func timeSpan(low time.Duration) Form {
	const span = `^([+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[0-9]+d(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$`
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

// ListOrOne is a list of at least this many items, or one value in the place of a list of one.
func ListOrOne(item Form, least int) Form {
	return AnyOf(item, Form{"type": "array", "items": item, "minItems": least})
}

// NamedColumns maps names of a certain form to one column each.
func NamedColumns(names Form) Form {
	return Form{"type": "object", "propertyNames": names, "additionalProperties": Form{"type": PlainTypes, "minLength": 1}}
}

// Nearest is the known name that name is probably a misspelling of: a third of it may differ, three
// bytes at most. "" if no known name is that close. Libraries of edit distances count a swap of two
// neighbours as two edits, and would replace 20 lines.
func Nearest(name string, known []string) string {
	best, most := "", 3
	for _, candidate := range known {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d <= min(most, max(1, len(name)/3)) {
			best, most = candidate, d-1 // the first of equals
		}
	}
	return best
}

// OrNearest is the end of a sentence about an unknown name: the nearest one, else all there are.
func OrNearest(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return ", the nearest known one is " + near
	}
	return "; known here are " + strings.Join(known, ", ")
}

// distance is the number of bytes to insert, remove, replace or swap with their neighbour to get
// from a to b.
func distance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			current[j] = min(previous[j]+1, current[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
