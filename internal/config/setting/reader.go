// Reading values: what was given, and the faults in it.

package setting

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Reader has what the file and the variables gave, reads values, and collects the faults. It is
// used by one goroutine.
type Reader struct {
	Env map[string]string
	// Given are the values that keys have in the end, by path, before they are read.
	Given  map[string]*Node
	Faults Faults
}

// Fault reports a fault of the key at path.
func (r *Reader) Fault(where Place, path, what string) {
	r.Faults = append(r.Faults, &Fault{Where: where, Key: path, What: what})
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
func (r *Reader) PlaceOf(path string) Place {
	if n, ok := r.Given[path]; ok {
		return n.Where
	}
	return Place{}
}

// IsFaulty reports whether the value of the key at path was refused: a fault that only follows from
// that is not reported.
func (r *Reader) IsFaulty(path string) bool {
	where := r.PlaceOf(path)
	return where != (Place{}) && slices.ContainsFunc(r.Faults, func(f *Fault) bool { return f.Where == where })
}

// Scalar is the text of a single value, references replaced; false after a fault.
func (r *Reader) Scalar(path string, n *Node) (string, bool) {
	if n.Kind != Scalar {
		r.Fault(n.Where, path, "wants a single value, has "+n.Kind.String())
		return "", false
	}
	value, err := Expand(n.Text, r.Env)
	if err != nil {
		r.Fault(n.Where, path, err.Error())
		return "", false
	}
	return value, true
}

// secret keeps the text with its references, and reads it once, so that a reference that cannot be
// read is reported now. An empty text of a variable counts as not set, because it cannot change. A
// file that is empty now may be filled later.
func (r *Reader) secret(path string, n *Node, show func(text, value string) string) (Secret, bool) {
	value, ok := r.Scalar(path, n)
	if !ok {
		return Secret{}, false
	}
	s := newSecret(written{text: n.Text, env: r.Env, shown: show(n.Text, value)})
	if _, err := s.Read(context.Background()); err != nil {
		r.Fault(n.Where, path, err.Error())
		return Secret{}, false
	}
	if value == "" && !strings.Contains(n.Text, "${file:") {
		return Secret{}, true
	}
	return s, true
}

// password reads a secret that may also be what a command prints. The command does not run now:
// what keeps it from printing may pass.
func (r *Reader) password(path string, n *Node) (Secret, bool) {
	run, is, err := parseCommand(n.Text)
	if n.Kind != Scalar || !is {
		return r.secret(path, n, ShowPassword)
	}
	if err != nil {
		r.Fault(n.Where, path, err.Error())
		return Secret{}, false
	}
	return newSecret(written{text: n.Text, run: run, shown: run.String()}), true
}

// FileSecret reads a secret whose files may be missing or hold anything: what does not depend on it
// goes on without it.
func (r *Reader) FileSecret(path string, n *Node) (Secret, bool) {
	if n.Kind == Scalar && strings.Contains(n.Text, "${file:") {
		return newSecret(written{text: n.Text, env: r.Env, shown: ShowPassword(n.Text, "")}), true
	}
	return r.secret(path, n, ShowPassword)
}

// NamedColumn feeds one message header or property from a column, which every table must have.
type NamedColumn struct{ Name, Column string }

// Named reads a mapping of a header or property to its one column, in the order written; check
// refuses a name.
func (r *Reader) Named(path string, n *Node, check func(name string) error) []NamedColumn {
	if n.Kind != Mapping {
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

// Quote writes text as a YAML scalar on one line that Load reads back as it is.
func Quote(s string) string { return quoteScalar(Literal(s)) }

// QuoteSecret does not escape: what a secret shows keeps its references.
func QuoteSecret(s Secret) string { return quoteScalar(s.String()) }

func quoteScalar(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off":
		return strconv.Quote(s)
	}
	if !bare().MatchString(s) {
		return strconv.Quote(s)
	}
	return s
}

// bare matches what every YAML reader takes as a string without quotes, also inside brackets.
var bare = lazy.Regexp(`^[A-Za-z_/]([A-Za-z0-9_./:@=-]*[A-Za-z0-9_./@=-])?$`)

// InlineList writes a list.
func InlineList[T any](items []T, show func(T) string) string {
	shown := make([]string, len(items))
	for i, item := range items {
		shown[i] = show(item)
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

func showNamed(columns []NamedColumn) string {
	shown := make([]string, len(columns))
	for i, c := range columns {
		shown[i] = Quote(c.Name) + ": " + Quote(c.Column)
	}
	return "{" + strings.Join(shown, ", ") + "}"
}

// ParseDuration reads a time span as time.ParseDuration does, and days before the rest of it: 7d,
// 1d12h. A day has 24 hours. The configuration and the command line have this one grammar.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, is := strings.Cut(s, "d")
	if !is {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, fmt.Errorf("invalid duration %q", s)
	}
	span := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return span, nil
	}
	more, err := time.ParseDuration(rest)
	if err == nil && span+more < span {
		err = fmt.Errorf("invalid duration %q: it is too long", s)
	}
	return span + more, err
}

// ShowDuration writes a time span without parts that are zero.
func ShowDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// ShowSize is a number of bytes in the largest unit that divides it.
func ShowSize(n int64) string {
	for _, unit := range units[:3] {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1}}

// ParseSize reads whole bytes with or without a unit; MiB is 1024², MB is 1000².
func ParseSize(s string) (int64, bool) {
	for _, unit := range units {
		digits, ok := strings.CutSuffix(s, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/unit.bytes {
			return 0, false
		}
		return n * unit.bytes, true
	}
	return 0, false
}
