// The configuration file that the importer writes: its keys with their values, in a fixed order,
// each with a comment that says which properties it comes from.

package importer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// document is the relay's configuration while the importer makes it.
type document struct {
	from  string // the names of the files that were read, for the heading
	lines []line
}

// line is one key of the configuration with its value.
type line struct {
	path    []string
	scalar  string // as YAML
	comment string
}

// order is the order of keys in the file. Keys of one section that are not named here keep the
// order in which they were set.
var order = []string{
	"source.url", "source.password", "source.slot", "source.publication", "source.tables", "source.create", "source",
	"sink.compat.profile", "sink.compat.options",
	"sink.kafka.brokers", "sink.kafka.compression", "sink.kafka.tls.enabled", "sink.kafka.tls", "sink.kafka.sasl.mechanism", "sink.kafka.sasl.username", "sink.kafka.sasl.oauth", "sink.kafka.sasl.extensions", "sink.kafka.sasl",
	"sink.rabbitmq.url", "sink.rabbitmq.username", "sink.rabbitmq.password", "delivery",
}

// set appends a key. path has its sections joined by dots, and scalar is its value as YAML.
func (d *document) set(path, scalar, comment string) {
	d.lines = append(d.lines, line{path: strings.Split(path, "."), scalar: scalar, comment: comment})
}

// write writes the document as YAML, with heading as comments on top.
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

// sorted returns the lines in the order of the file.
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

// clean replaces control characters and line ends by spaces, so that text from a file stays on one
// line of a comment or report.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}
