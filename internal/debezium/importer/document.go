package importer

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// document is our configuration, as keys with their values and where they came from.
type document struct {
	lines   []docLine
	heading []string
	secrets bool // a password stands in it as it is
}

type docLine struct {
	path    []string
	scalar  string // as YAML
	public  string // instead of scalar where others may read it; "" for scalar itself
	comment string
}

// order is that of the sections; keys stay as they were set.
var order = []string{
	"source.url", "source.password", "source.slot", "source.publication", "source.tables", "source.create", "source",
	"sink.compat.profile", "sink.compat.options", "sink.kafka", "sink.rabbitmq", "delivery",
}

func (d *document) set(path, scalar, comment string) {
	d.lines = append(d.lines, docLine{path: strings.Split(path, "."), scalar: scalar, comment: comment})
}

// option is a key of sink.compat.options, whose names have dots.
func (d *document) option(name, scalar, comment string) {
	d.lines = append(d.lines, docLine{path: []string{"sink", "compat", "options", name}, scalar: scalar, comment: comment})
}

// secret writes a password; where others may read it, the reference stands for it.
func (d *document) secret(path string, v value, variable, comment string) {
	l := docLine{path: strings.Split(path, "."), scalar: quote(v.written()), comment: comment}
	if !v.onlyReferences() {
		d.secrets, l.public = true, quote("${"+variable+"}")
		if own, ok := v.withoutDefaults(); ok { // the deployment sets these already
			l.public = quote(own)
		}
	}
	d.lines = append(d.lines, l)
}

// write writes the configuration. public leaves out passwords: a variable stands in their place.
func (d *document) write(w io.Writer, public bool) error {
	var out strings.Builder
	for _, h := range d.heading {
		out.WriteString("# " + clean(h) + "\n")
	}
	var open []string
	for _, l := range d.sorted() {
		section := l.path[:len(l.path)-1]
		same := 0
		for same < len(open) && same < len(section) && open[same] == section[same] {
			same++
		}
		for depth := same; depth < len(section); depth++ {
			fmt.Fprintf(&out, "%s%s:\n", strings.Repeat("  ", depth), section[depth])
		}
		open = section
		text := l.scalar
		if public && l.public != "" {
			text, l.comment = l.public, l.comment+", not shown here: set the variable"
		}
		fmt.Fprintf(&out, "%s%s: %s", strings.Repeat("  ", len(section)), l.path[len(section)], text)
		if l.comment != "" {
			out.WriteString("  # " + clean(l.comment))
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (d *document) sorted() []docLine {
	lines := slices.Clone(d.lines)
	place := func(l docLine) int {
		path := strings.Join(l.path, ".")
		return slices.IndexFunc(order, func(section string) bool { return path == section || strings.HasPrefix(path, section+".") })
	}
	slices.SortStableFunc(lines, func(x, y docLine) int { return place(x) - place(y) })
	return lines
}

var (
	bare   = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./:@=-]*[A-Za-z0-9_./@=-])?$`)
	number = regexp.MustCompile(`^(0|[1-9][0-9]*)(ms|s|m|h)?$`)
	word   = regexp.MustCompile(`(?i)^(null|yes|no|on|off|y|n|~)$`)
)

// quote writes text as a YAML scalar on one line.
func quote(s string) string {
	if !word.MatchString(s) && (bare.MatchString(s) || number.MatchString(s)) {
		return s
	}
	return strconv.Quote(s)
}
