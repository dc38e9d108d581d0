// Package output is what an import gives: verdicts on properties, and our configuration.
package output

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Document is our configuration, as keys with their values and where they came from.
type Document struct {
	Lines   []docLine
	Heading []string
}

type docLine struct {
	Path    []string
	Scalar  string // as YAML
	public  string // instead of scalar where others may read it; "" for scalar itself
	comment string
}

// order is that of the sections; keys stay as they were set.
var order = []string{
	"source.url", "source.password", "source.slot", "source.publication", "source.tables", "source.create", "source",
	"sink.compat.profile", "sink.compat.options", "sink.kafka", "sink.rabbitmq", "delivery",
}

// Set appends a key by its path, whose names are joined by dots, with its value as YAML and a
// comment.
func (d *Document) Set(path, scalar, comment string) {
	d.Lines = append(d.Lines, docLine{Path: strings.Split(path, "."), Scalar: scalar, comment: comment})
}

// Option is a key of sink.compat.options, whose names have dots.
func (d *Document) Option(name, scalar, comment string) {
	d.Lines = append(d.Lines, docLine{Path: []string{"sink", "compat", "options", name}, Scalar: scalar, comment: comment})
}

// Secret writes a password; where others may read it, the reference stands for it.
func (d *Document) Secret(path string, v Value, variable, comment string) {
	l := docLine{Path: strings.Split(path, "."), Scalar: Quote(v.Written()), comment: comment}
	if !v.OnlyReferences() {
		l.public = Quote("${" + variable + "}")
		if own, ok := v.withoutDefaults(); ok { // the deployment sets these already
			l.public = Quote(own)
		}
	}
	d.Lines = append(d.Lines, l)
}

// Write writes the configuration. public leaves out passwords: a variable stands in their place.
func (d *Document) Write(w io.Writer, public bool) error {
	var out strings.Builder
	for _, h := range d.Heading {
		out.WriteString("# " + clean(h) + "\n")
	}
	var open []string
	for _, l := range d.sorted() {
		section := l.Path[:len(l.Path)-1]
		same := 0
		for same < len(open) && same < len(section) && open[same] == section[same] {
			same++
		}
		for depth := same; depth < len(section); depth++ {
			fmt.Fprintf(&out, "%s%s:\n", strings.Repeat("  ", depth), section[depth])
		}
		open = section
		text := l.Scalar
		if public && l.public != "" {
			text, l.comment = l.public, l.comment+", not shown here: set the variable"
		}
		fmt.Fprintf(&out, "%s%s: %s", strings.Repeat("  ", len(section)), l.Path[len(section)], text)
		if l.comment != "" {
			out.WriteString("  # " + clean(l.comment))
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (d *Document) sorted() []docLine {
	lines := slices.Clone(d.Lines)
	place := func(l docLine) int {
		path := strings.Join(l.Path, ".")
		return slices.IndexFunc(order, func(section string) bool { return path == section || strings.HasPrefix(path, section+".") })
	}
	slices.SortStableFunc(lines, func(x, y docLine) int { return place(x) - place(y) })
	return lines
}

var (
	bare   = lazy.Regexp(`^[A-Za-z_/]([A-Za-z0-9_./:@=-]*[A-Za-z0-9_./@=-])?$`)
	number = lazy.Regexp(`^(0|[1-9][0-9]*)(ms|s|m|h)?$`)
	word   = lazy.Regexp(`(?i)^(null|yes|no|on|off|y|n|~)$`)
)

// Quote writes text as a YAML scalar on one line.
func Quote(s string) string {
	if !word().MatchString(s) && (bare().MatchString(s) || number().MatchString(s)) {
		return s
	}
	return strconv.Quote(s)
}
