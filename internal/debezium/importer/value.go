package importer

import "strings"

// value is what a property is set to: text, and references in it that are replaced when the relay starts.
type value []part

type part struct {
	text  string // the text; of a reference, what it stands for as far as the files say
	ref   string // what stands between ${ and } in our configuration; "" for text
	known bool   // of a reference: text is what it stands for
}

func literal(s string) value { return value{{text: s}} }

// joined puts texts beside each other together, and leaves out empty ones.
func (v value) joined() value {
	out := value{}
	for _, p := range v {
		switch last := len(out) - 1; {
		case p.ref == "" && p.text == "":
		case p.ref == "" && last >= 0 && out[last].ref == "":
			out[last].text += p.text
		default:
			out = append(out, p)
		}
	}
	return out
}

// plain is the value with the references replaced that the files explain; false when one is left.
func (v value) plain() (string, bool) {
	var out strings.Builder
	for _, p := range v {
		if p.ref != "" && !p.known {
			return "", false
		}
		out.WriteString(p.text)
	}
	return out.String(), true
}

// written is the value as our configuration writes it: references kept, $ doubled.
func (v value) written() string {
	var out strings.Builder
	for _, p := range v {
		if p.ref != "" {
			out.WriteString("${" + p.ref + "}")
			continue
		}
		out.WriteString(strings.ReplaceAll(p.text, "$", "$$"))
	}
	return out.String()
}

// resolved is written with the references replaced that the files explain. It is for what is not secret.
func (v value) resolved() string {
	var out value
	for _, p := range v {
		if p.known {
			p.ref = ""
		}
		out = append(out, p)
	}
	return out.written()
}

// isReference is true for one reference and nothing else.
func (v value) isReference() bool { return len(v) == 1 && v[0].ref != "" }

// onlyReferences is true when nothing of the value itself stands in the file.
func (v value) onlyReferences() bool {
	for _, p := range v {
		if p.ref == "" && p.text != "" || strings.Contains(p.ref, ":-") && !strings.HasSuffix(p.ref, ":-") {
			return false
		}
	}
	return true
}

// withoutDefaults is written without what the variables are when they are not set; false when the value has text of its own, or a
// reference that is no variable.
func (v value) withoutDefaults() (string, bool) {
	var out strings.Builder
	for _, p := range v {
		name, _, _ := strings.Cut(p.ref, ":-")
		if strings.Contains(name, ":") || p.ref == "" && p.text != "" {
			return "", false
		}
		out.WriteString("${" + name + "}")
	}
	return out.String(), true
}
