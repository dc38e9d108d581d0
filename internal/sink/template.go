// Templates of names: exchange, routing key and topic.

package sink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// allowed is what a template may contain, for the error that refuses the rest.
const allowed = "{aggregate}, {key}, {type}, {id} and {column:NAME}"

// Template makes the name of a destination (exchange, routing key, topic) from an event. The zero
// value is the empty constant. It is immutable and safe for concurrent use.
type Template struct {
	text  string
	parts []part // empty: text is the value
	fixed []byte // the value of a bound template without parts
}

// part is one literal or one placeholder.
type part struct {
	name   string // of the placeholder: one of mapped, or column; "" for a literal
	text   string // a literal's text, a column's name
	column int    // the column's place in Event.Columns, -1 until Bind
}

const column = "column"

// mapped are the placeholders for columns of the mapping.
var mapped = []string{"aggregate", "key", "type", "id"}

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
			t.parts = append(t.parts, part{text: rest})
			break
		}
		if rest[open] == '}' {
			return Template{}, fmt.Errorf("parse template %q: a } without its {; allowed are %s", s, allowed)
		}
		if open > 0 {
			t.parts = append(t.parts, part{text: rest[:open]})
		}
		end := strings.IndexAny(rest[open+1:], "{}")
		if end < 0 || rest[open+1+end] == '{' {
			return Template{}, fmt.Errorf("parse template %q: a { without its }; allowed are %s", s, allowed)
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

// TemplateKey is a key of a template. A profile replaces it.
func TemplateKey(name string, at *Template) setting.Key {
	return setting.Compat(setting.Single(name, setting.AnyText(), at, ParseTemplate, func(t Template) string { return setting.Quote(t.String()) }))
}

// parsePlaceholder parses the text between the braces.
func parsePlaceholder(name string) (part, error) {
	if slices.Contains(mapped, name) {
		return part{name: name}, nil
	}
	if col, ok := strings.CutPrefix(name, "column:"); ok && col != "" {
		return part{name: column, text: col, column: -1}, nil
	}
	return part{}, fmt.Errorf("unknown placeholder {%s}; allowed are %s", name, allowed)
}

// String is the template as it was written.
func (t Template) String() string { return t.text }

// Constant returns the value of a template without placeholders.
func (t Template) Constant() (string, bool) { return t.text, len(t.parts) == 0 }

// glob is the pattern of all names that the template may make.
func (t Template) glob() string {
	if len(t.parts) == 0 {
		return t.text
	}
	var glob strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			glob.WriteString(p.text)
		} else {
			glob.WriteString(everything)
		}
	}
	return glob.String()
}

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
		if slices.Contains(mapped, p.name) && !slices.Contains(names, p.name) {
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

// Append appends the value for ev to dst. ok is false when a placeholder's value is NULL; dst is
// then of no use.
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
		v := p.of(ev)
		if v == nil {
			return dst, false
		}
		dst = append(dst, v...)
	}
	return dst, true
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
		return rec.Since(start)
	}
	return nil
}

// of is the placeholder's value in ev; nil is NULL.
func (p *part) of(ev *event.Event) []byte {
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
