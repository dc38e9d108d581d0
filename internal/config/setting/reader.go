// Reading values: what was given, and the faults in it.

package setting

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
)

// Reader has what the file and the variables gave, reads values, and collects the faults. It is
// used by one goroutine.
type Reader struct {
	Env map[string]string
	// Given are the values that keys have in the end, by path, before they are read.
	Given  map[string]*document.Node
	Faults document.Faults
}

// Fault reports a fault of the key at path.
func (r *Reader) Fault(where document.Place, path, what string) {
	r.Faults = append(r.Faults, &document.Fault{Where: where, Key: path, What: what})
}

// FaultAt reports err, if it is one, about the key at path.
func (r *Reader) FaultAt(path string, err error) {
	if err != nil {
		r.Fault(r.PlaceOf(path), path, err.Error())
	}
}

// IsGiven reports whether the file or a variable has the key at path.
func (r *Reader) IsGiven(path string) bool { return r.Given[path] != nil }

// PlaceOf is where the value of a key was written, nowhere for a default.
func (r *Reader) PlaceOf(path string) document.Place {
	if n, ok := r.Given[path]; ok {
		return n.Where
	}
	return document.Place{}
}

// IsFaulty reports whether the value of the key at path was refused: a fault that only follows from
// that is not reported.
func (r *Reader) IsFaulty(path string) bool {
	where := r.PlaceOf(path)
	return where != (document.Place{}) && slices.ContainsFunc(r.Faults, func(f *document.Fault) bool { return f.Where == where })
}

// Scalar is the text of a single value, references replaced; false after a fault.
func (r *Reader) Scalar(path string, n *document.Node) (string, bool) {
	if n.Kind != document.Scalar {
		r.Fault(n.Where, path, "wants a single value, has "+n.Kind.String())
		return "", false
	}
	value, err := document.Expand(n.Text, r.Env)
	if err != nil {
		r.Fault(n.Where, path, err.Error())
		return "", false
	}
	return value, true
}

// secret keeps the text with its references, and reads it once, so that a reference that cannot be
// read is reported now. An empty text of a variable counts as not set, because it cannot change. A
// file that is empty now may be filled later.
func (r *Reader) secret(path string, n *document.Node, show func(text, value string) string) (Secret, bool) {
	value, ok := r.Scalar(path, n)
	if !ok {
		return Secret{}, false
	}
	s := newSecret(written{text: n.Text, env: r.Env, shown: show(n.Text, value)})
	if _, err := s.Read(); err != nil {
		r.Fault(n.Where, path, err.Error())
		return Secret{}, false
	}
	if value == "" && !strings.Contains(n.Text, "${file:") {
		return Secret{}, true
	}
	return s, true
}

// FileSecret reads a secret whose files may be missing or hold anything: what does not depend on it
// goes on without it.
func (r *Reader) FileSecret(path string, n *document.Node) (Secret, bool) {
	if n.Kind == document.Scalar && strings.Contains(n.Text, "${file:") {
		return newSecret(written{text: n.Text, env: r.Env, shown: ShowPassword(n.Text, "")}), true
	}
	return r.secret(path, n, ShowPassword)
}

// NamedColumn feeds one message header or property from a column, which every table must have.
type NamedColumn struct{ Name, Column string }

// Named reads a mapping of a header or property to its one column, in the order written; check
// refuses a name.
func (r *Reader) Named(path string, n *document.Node, check func(name string) error) []NamedColumn {
	if n.Kind != document.Mapping {
		r.Fault(n.Where, path, "wants a mapping of name: column, has "+n.Kind.String())
		return nil
	}
	var read []NamedColumn
	for _, e := range n.Entries {
		at := path + "." + e.Name
		if err := check(e.Name); err != nil {
			r.Fault(e.Where, at, err.Error())
			continue
		}
		column, ok := r.Scalar(at, e.Value)
		switch {
		case ok && column == "":
			r.Fault(e.Value.Where, at, "wants the name of a column")
		case ok:
			read = append(read, NamedColumn{Name: e.Name, Column: column})
		}
	}
	return read
}
