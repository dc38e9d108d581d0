// Our configuration, as it is written: keys with their values and where they came from.

package importer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// document is our configuration.
type document struct {
	from  string // names of the files
	lines []line
}

// line is a key with its value.
type line struct {
	path    []string
	scalar  string // as YAML
	comment string
}

// order is the order of the keys; within a section they stay as they were set.
var order = []string{
	"source.url", "source.password", "source.slot", "source.publication", "source.tables", "source.create", "source",
	"sink.compat.profile", "sink.compat.options",
	"sink.kafka.brokers", "sink.kafka.compression", "sink.kafka.tls.enabled", "sink.kafka.tls", "sink.kafka.sasl.mechanism", "sink.kafka.sasl",
	"sink.rabbitmq.url", "sink.rabbitmq.username", "sink.rabbitmq.password", "delivery",
}

// set appends a key by its path, with its value as YAML and a comment.
func (d *document) set(path, scalar, comment string) {
	d.lines = append(d.lines, line{path: strings.Split(path, "."), scalar: scalar, comment: comment})
}

// secret writes the references that a password is made of. A password is never copied: a variable
// stands in its place.
func (d *document) secret(path string, v value, name, comment string) {
	if v.onlyReferences() {
		d.set(path, quote(string(v)), comment)
		return
	}
	d.set(path, quote("${"+name+"}"), comment+", not shown here: set the variable")
}

func (d *document) write(w io.Writer, heading []string) error {
	var out strings.Builder
	for _, h := range heading {
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
		fmt.Fprintf(&out, "%s%s: %s", strings.Repeat("  ", len(section)), l.path[len(section)], l.scalar)
		if l.comment != "" {
			out.WriteString("  # " + clean(l.comment))
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (d *document) sorted() []line {
	lines := slices.Clone(d.lines)
	place := func(l line) int {
		path := strings.Join(l.path, ".")
		return slices.IndexFunc(order, func(section string) bool { return path == section || strings.HasPrefix(path, section+".") })
	}
	slices.SortStableFunc(lines, func(x, y line) int { return place(x) - place(y) })
	return lines
}

var (
	bare   = lazy.Regexp(`^[A-Za-z_/]([A-Za-z0-9_./:@=-]*[A-Za-z0-9_./@=-])?$`)
	number = lazy.Regexp(`^(0|[1-9][0-9]*)(ms|s|m|h)?$`)
	word   = lazy.Regexp(`(?i)^(null|yes|no|on|off|y|n|~)$`)
)

// quote writes text as a YAML scalar on one line.
func quote(s string) string {
	if !word().MatchString(s) && (bare().MatchString(s) || number().MatchString(s)) {
		return s
	}
	return strconv.Quote(s)
}

// clean makes one line of a comment.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}
