// Values: text with references, as our configuration writes them.

package output

import "strings"

// Value is what a property is set to: text, and references in it that are replaced when the relay
// starts.
type Value []Part

// Part is a piece of a value: a text or a reference.
type Part struct {
	Text  string // the text; of a reference, what it stands for as far as the files say
	Ref   string // what stands between ${ and } in our configuration; "" for text
	Known bool   // of a reference: text is what it stands for
}

// Literal is the value that is this text, without a reference.
func Literal(s string) Value { return Value{{Text: s}} }

// Joined joins neighbouring texts, and leaves out empty ones.
func (v Value) Joined() Value {
	out := Value{}
	for _, p := range v {
		switch last := len(out) - 1; {
		case p.Ref == "" && p.Text == "":
		case p.Ref == "" && last >= 0 && out[last].Ref == "":
			out[last].Text += p.Text
		default:
			out = append(out, p)
		}
	}
	return out
}

// Plain is the value with the references replaced that the files explain; false when one is left.
func (v Value) Plain() (string, bool) {
	var out strings.Builder
	for _, p := range v {
		if p.Ref != "" && !p.Known {
			return "", false
		}
		out.WriteString(p.Text)
	}
	return out.String(), true
}

// Written is the value as our configuration writes it: references kept, $ doubled.
func (v Value) Written() string {
	var out strings.Builder
	for _, p := range v {
		if p.Ref != "" {
			out.WriteString("${" + p.Ref + "}")
			continue
		}
		out.WriteString(strings.ReplaceAll(p.Text, "$", "$$"))
	}
	return out.String()
}

// Resolved is written with the references replaced that the files explain. It is for what is not
// secret.
func (v Value) Resolved() string {
	var out Value
	for _, p := range v {
		if p.Known {
			p.Ref = ""
		}
		out = append(out, p)
	}
	return out.Written()
}

// IsReference is true for one reference and nothing else.
func (v Value) IsReference() bool { return len(v) == 1 && v[0].Ref != "" }

// OnlyReferences is true when nothing of the value itself stands in the file.
func (v Value) OnlyReferences() bool {
	for _, p := range v {
		if p.Ref == "" && p.Text != "" || strings.Contains(p.Ref, ":-") && !strings.HasSuffix(p.Ref, ":-") {
			return false
		}
	}
	return true
}

// withoutDefaults is written without what the variables are when they are not set; false when the
// value has text of its own, or a reference that is no variable.
func (v Value) withoutDefaults() (string, bool) {
	var out strings.Builder
	for _, p := range v {
		name, _, _ := strings.Cut(p.Ref, ":-")
		if strings.Contains(name, ":") || p.Ref == "" && p.Text != "" {
			return "", false
		}
		out.WriteString("${" + name + "}")
	}
	return out.String(), true
}
