// The output of config print.

package config

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
)

// Print writes the effective configuration as YAML. Secrets are replaced, and a comment says where
// each value came from: a line of the file, a variable, or the defaults.
func (c *Config) Print(w io.Writer) error {
	var out bytes.Buffer
	var open []string
	for _, f := range fields {
		if !c.applies(f.path) {
			continue
		}
		section, name, _ := cutLast(f.path)
		open = openSection(&out, open, strings.Split(section, "."))
		line := strings.Repeat("  ", len(open)) + name + ": " + f.show(c)
		fmt.Fprintf(&out, "%s  # %s\n", strings.TrimRight(line, " "), c.origin(f.path))
	}
	_, err := w.Write(out.Bytes())
	return err
}

// applies is false for keys of a sink that is not configured, and for those that Load refuses
// together with others: a user name with addresses that carry one, lanes with partitions.
func (c *Config) applies(path string) bool {
	_, replaced := replacedByOptions[path]
	switch {
	case c.Sink.Compat.Profile != "" && replaced:
		return false
	case path == "sink.stdout":
		return c.Sink.Stdout != nil
	case path == "sink.rabbitmq.username", path == "sink.rabbitmq.password":
		return c.Sink.RabbitMQ != nil && !c.Sink.RabbitMQ.userInURL
	case strings.HasPrefix(path, "sink.rabbitmq."):
		return c.Sink.RabbitMQ != nil
	case strings.HasPrefix(path, "sink.kafka."):
		return c.Sink.Kafka != nil
	case path == "delivery.lanes":
		return c.Sink.Kafka == nil
	}
	return true
}

// openSection writes the headings of the sections that are not open yet.
func openSection(out *bytes.Buffer, open, want []string) []string {
	same := 0
	for same < len(open) && same < len(want) && open[same] == want[same] {
		same++
	}
	for depth := same; depth < len(want); depth++ {
		fmt.Fprintf(out, "%s%s:\n", strings.Repeat("  ", depth), want[depth])
	}
	return want
}

func (c *Config) origin(path string) string {
	n, written := c.wrote[path]
	switch {
	case !written:
		return "default"
	case n.Where.Variable != "":
		return n.Where.Variable
	}
	return fmt.Sprintf("%s:%d", n.Where.File, n.Where.Line)
}

// quote writes text as a YAML scalar on one line that Load reads back as it is.
func quote(s string) string { return quoteScalar(document.Literal(s)) }

// quoteSecret does not escape: what a secret shows keeps its references.
func quoteSecret(s Secret) string { return quoteScalar(s.String()) }

func quoteScalar(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off":
		return strconv.Quote(s)
	}
	if !bare.MatchString(s) {
		return strconv.Quote(s)
	}
	return s
}

// bare matches what every YAML reader takes as a string without quotes, also inside brackets.
var bare = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./:@=-]*[A-Za-z0-9_./@=-])?$`)

func inlineList[T any](items []T, show func(T) string) string {
	shown := make([]string, len(items))
	for i, item := range items {
		shown[i] = show(item)
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

// showTables writes a table whose mapping is the outbox section's as its name, any other with the
// keys that differ.
func showTables(c *Config) string {
	return inlineList(c.Source.Tables, func(t Table) string {
		name := quote(showIdentifier(t.Schema) + "." + showIdentifier(t.Name))
		own := &Config{Outbox: t.Outbox}
		differing := []string{"name: " + name}
		for _, f := range outboxFields {
			if f.show(own) != f.show(c) {
				differing = append(differing, strings.TrimPrefix(f.path, "outbox.")+": "+f.show(own))
			}
		}
		if len(differing) == 1 {
			return name
		}
		return "{" + strings.Join(differing, ", ") + "}"
	})
}

// showIdentifier quotes a name as parseTable reads it.
func showIdentifier(name string) string {
	if strings.ContainsAny(name, `."`) {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}

func showColumn(c Column) string {
	switch len(c.Names) {
	case 0:
		return `""`
	case 1:
		return quote(c.Names[0])
	}
	return inlineList(c.Names, quote)
}

func showNamed(columns []NamedColumn) string {
	shown := make([]string, len(columns))
	for i, c := range columns {
		shown[i] = quote(c.Name) + ": " + showColumn(c.Column)
	}
	return "{" + strings.Join(shown, ", ") + "}"
}

func showDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func showSize(n int64) string {
	for _, unit := range units[:3] {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}
