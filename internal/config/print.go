// The output of config print.

package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

// Print writes the effective configuration as YAML. Secrets are replaced, and a comment says where
// each value came from: a line of the file, a variable, or the defaults.
func (c *Config) Print(w io.Writer) error {
	var out bytes.Buffer
	var open []string
	for _, k := range c.keys() {
		if !c.applies(&k) {
			continue
		}
		section, name, _ := cutLast(k.Name)
		open = openSection(&out, open, strings.Split(section, "."))
		line := strings.Repeat("  ", len(open)) + name + ": " + k.Show()
		fmt.Fprintf(&out, "%s  # %s\n", strings.TrimRight(line, " "), c.origin(k.Name))
	}
	_, err := w.Write(out.Bytes())
	return err
}

// applies is false for keys that Load refuses together with others: a user name with addresses that
// carry one, lanes with partitions.
func (c *Config) applies(k *setting.Key) bool {
	switch {
	case c.Sink.Compat.Profile != "" && isReplaced(k):
		return false
	case k.Name == "delivery.lanes":
		return !c.Sink.Driver.OwnLanes
	}
	return k.Applies == nil || k.Applies()
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
