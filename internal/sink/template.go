// Templates of names (exchange, routing key and topic), and where row data may send events:
// patterns of these.

package sink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// allowedPlaceholders is what a template may contain, for the error that refuses the rest.
const allowedPlaceholders = "{aggregate}, {key}, {type}, {id} and {column:NAME}"

// Template makes the name of a destination (exchange, routing key, topic) from an event. The zero
// value is the empty constant. It is immutable and safe for concurrent use.
type Template struct {
	text  string
	parts []templatePart // empty: text is the value
	fixed []byte         // the value of a bound template without parts
}

// templatePart is one literal or one placeholder.
type templatePart struct {
	name   string // of the placeholder: one of mapped, or column; "" for a literal
	text   string // a literal's text, a column's name
	column int    // the column's place in Event.Columns, -1 until Bind
}

const column = "column"

// mappedPlaceholders are the placeholders for columns of the mapping.
var mappedPlaceholders = []string{"aggregate", "key", "type", "id"}

// ParseTemplate reads a template: text with the placeholders {aggregate}, {key}, {type}, {id} and
// {column:NAME}. There is no escape for braces. A template that names columns must be bound before
// it is used.
func ParseTemplate(s string) (Template, error) {
	t := Template{text: s}
	if !strings.ContainsAny(s, "{}") {
		return t, nil
	}
	for rest := s; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			t.parts = append(t.parts, templatePart{text: rest})
			break
		}
		if rest[open] == '}' {
			return Template{}, fmt.Errorf("parse template %q: a } without its {; allowed are %s", s, allowedPlaceholders)
		}
		if open > 0 {
			t.parts = append(t.parts, templatePart{text: rest[:open]})
		}
		end := strings.IndexAny(rest[open+1:], "{}")
		if end < 0 || rest[open+1+end] == '{' {
			return Template{}, fmt.Errorf("parse template %q: a { without its }; allowed are %s", s, allowedPlaceholders)
		}
		p, err := parsePlaceholder(rest[open+1 : open+1+end])
		if err != nil {
			return Template{}, fmt.Errorf("parse template %q: %w", s, err)
		}
		t.parts = append(t.parts, p)
		rest = rest[open+end+2:]
	}
	return t, nil
}

// MustTemplate is a template of the code's own, such as a default; it panics over a fault.
func MustTemplate(s string) Template {
	t, err := ParseTemplate(s)
	if err != nil {
		panic(err)
	}
	return t
}

// TemplateKey is a key of the configuration whose value is a template. With a Debezium profile it
// may not be set: the profile writes the template.
func TemplateKey(name string, at *Template) setting.Key {
	return setting.Compat(setting.Single(name, setting.AnyText(), at, ParseTemplate, func(t Template) string { return setting.Quote(t.String()) }))
}

// parsePlaceholder parses the text between the braces.
func parsePlaceholder(name string) (templatePart, error) {
	if slices.Contains(mappedPlaceholders, name) {
		return templatePart{name: name}, nil
	}
	if col, ok := strings.CutPrefix(name, "column:"); ok && col != "" {
		return templatePart{name: column, text: col, column: -1}, nil
	}
	return templatePart{}, fmt.Errorf("unknown placeholder {%s}; allowed are %s", name, allowedPlaceholders)
}

// String is the template as it was written.
func (t Template) String() string { return t.text }

// Constant returns the value of a template without placeholders.
func (t Template) Constant() (string, bool) { return t.text, len(t.parts) == 0 }

// Columns lists the columns that the template names, each once, in order of appearance.
func (t Template) Columns() []string {
	var names []string
	for _, p := range t.parts {
		if p.name == column && !slices.Contains(names, p.text) {
			names = append(names, p.text)
		}
	}
	return names
}

// Uses reports which columns of the mapping the template needs: "aggregate", "key", "type", "id".
func (t Template) Uses() []string {
	var names []string
	for _, p := range t.parts {
		if slices.Contains(mappedPlaceholders, p.name) && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// Bind returns the template with each {column:NAME} tied to its place in columns, which is the
// order of Event.Columns.
func (t Template) Bind(columns []string) (Template, error) {
	t.parts = slices.Clone(t.parts)
	if len(t.parts) == 0 {
		t.fixed = []byte(t.text)
	}
	for i, p := range t.parts {
		if p.name != column {
			continue
		}
		if t.parts[i].column = slices.Index(columns, p.text); t.parts[i].column < 0 {
			return Template{}, fmt.Errorf("bind template %q: column %q is not read", t.text, p.text)
		}
	}
	return t, nil
}

// Append appends the value for ev to dst. ok is false when a placeholder's value is NULL: then
// value is incomplete.
func (t Template) Append(dst []byte, ev *event.Event) (value []byte, ok bool) {
	if len(t.parts) == 0 {
		return append(dst, t.text...), true
	}
	for i := range t.parts {
		p := &t.parts[i]
		if p.name == "" {
			dst = append(dst, p.text...)
			continue
		}
		v := p.valueIn(ev)
		if v == nil {
			return dst, false
		}
		dst = append(dst, v...)
	}
	return dst, true
}

// Size is how many bytes Append appends for ev, at most.
func (t Template) Size(ev *event.Event) (size int) {
	for i := range t.parts {
		if p := &t.parts[i]; p.name == "" {
			size += len(p.text)
		} else {
			size += len(p.valueIn(ev))
		}
	}
	return max(size, len(t.fixed))
}

// Fixed is the value that a bound template gives every event; nil: it depends on the event.
func (t Template) Fixed() []byte { return t.fixed }

// Name is the value for ev, made in rec.Buf unless it is fixed; nil: a placeholder's value is NULL.
func (t *Template) Name(ev *event.Event, rec *Record) (name []byte) {
	if t.fixed != nil {
		return t.fixed
	}
	start := len(rec.Buf)
	if buf, ok := t.Append(rec.Buf, ev); ok {
		rec.Buf = buf
		return rec.MadeSince(start)
	}
	return nil
}

// valueIn is the placeholder's value in ev; nil is NULL.
func (p *templatePart) valueIn(ev *event.Event) []byte {
	switch p.name {
	case "aggregate":
		return ev.Aggregate
	case "key":
		return ev.Key
	case "type":
		return ev.Type
	case "id":
		return ev.ID
	}
	if p.column < 0 || p.column >= len(ev.Columns) {
		return nil // never bound: refused as NULL rather than sent to a wrong place
	}
	return ev.Columns[p.column]
}

// Allow are the patterns of a part of the route: a * stands for any characters, also none, and
// everything else for itself; the empty pattern is that of the empty name, as the default exchange
// has it. Without patterns every name is allowed. The templates take names from
// rows, so whoever may write to the outbox would else choose among all exchanges and topics to
// which the relay's user may publish.
type Allow []string

// Everything are the patterns that allow every name: the default of each sink.
func Everything() Allow { return Allow{matchAll} }

const matchAll = "*" // the pattern of every name

// Bounds are the patterns as a sink wants them: nil, if one of them allows everything.
func (a Allow) Bounds() Allow {
	if slices.Contains(a, matchAll) {
		return nil
	}
	return a
}

// Allows reports whether a name matches a pattern. It allocates nothing.
func Allows[T string | []byte](a Allow, name T) bool {
	for _, pattern := range a {
		if matchesPattern(pattern, name) {
			return true
		}
	}
	return len(a) == 0
}

// matchesPattern goes through the name once. When it is stuck, the last * takes one character more:
// an earlier one need never take more, because what is between the two has been found already.
func matchesPattern[T string | []byte](pattern string, name T) bool {
	p, star, from := 0, -1, 0
	for i := 0; i < len(name); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && pattern[p] == name[i]:
			p++
			i++
		case star >= 0:
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// String lists the patterns.
func (a Allow) String() string {
	shown := slices.Clone(a)
	for i, pattern := range a {
		if pattern == "" {
			shown[i] = `""`
		}
	}
	return strings.Join(shown, ", ")
}

// NotAllowedFault is the fault for a name that no pattern of the key allows; whole: it is the name
// of an exchange or topic. Nothing was sent. It is the destination's: its events wait, in order,
// until a relay starts with other patterns.
func NotAllowedFault(destination, name, key string, whole bool) *Fault {
	return &Fault{
		Class: Destination, Reason: NotAllowed, Whole: whole, Destination: destination,
		Text: fmt.Sprintf("%s is not allowed by %s", name, key),
	}
}

// AllowKey is the key of the configuration that lists the patterns of a part of the route.
func AllowKey(part string, at *Allow) setting.Key {
	form := setting.Form{"type": setting.PlainTypes}
	k := setting.Texts(allowKey(part), (*[]string)(at), form, `has no pattern; write "*" to allow everything`, func(string) error { return nil })
	k.SectionFault = "is empty; leave it out to allow everything"
	return k
}

func allowKey(part string) string { return "allow." + part }

// AllowKey is the name of the key that lists the template's patterns, below the sink's section.
func (t *NamedTemplate) AllowKey() string { return allowKey(t.Key) }

// CheckAllowed refuses a name that the template's own patterns exclude: where every event goes, or
// the copies of dead letters. They would wait for ever.
func (t *NamedTemplate) CheckAllowed(name, sent string) error {
	if Allows(t.Allow, name) {
		return nil
	}
	return fmt.Errorf("does not allow %q, where %s; add it to the patterns", name, sent)
}

// FindAllowed says how far row data may choose.
func FindAllowed(section string, templates []NamedTemplate) (found []Finding) {
	for _, p := range templates {
		name, fixed := p.Constant()
		f, key := Finding{Name: "allowed " + strings.ReplaceAll(p.Key, "_", " ") + "s", OK: true}, section+p.AllowKey()
		switch {
		case len(p.Allow.Bounds()) > 0:
			f.Detail = fmt.Sprintf("%s: %s", key, p.Allow)
		case fixed:
			f.Detail = fmt.Sprintf("everything is allowed; %s is %q for every event", section+p.Key, name)
		default:
			f.OK, f.Warn = false, true
			f.Detail = fmt.Sprintf("everything is allowed: row data decides where events go (%s is %q)", section+p.Key, p.Template)
			f.Fix = fmt.Sprintf("list what rows may name in %s", key)
		}
		found = append(found, f)
	}
	return found
}
