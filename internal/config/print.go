// A configuration that was read: printed, and compared with another reading of it.

package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Entry is a key of the effective configuration with its value, without secrets.
type Entry struct {
	Key      string `json:"key"`
	Value    string `json:"value"` // YAML on one line
	Default  bool   `json:"default"`
	From     string `json:"from"`     // FILE:LINE, a variable, or default
	Variable string `json:"variable"` // that overrides it
	Does     string `json:"does"`     // Markdown, as docs/configuration.md has it
	More     string `json:"more"`     // likewise
	Values   string `json:"values"`   // that it takes; "": Does says it
	Secret   bool   `json:"secret"`   // the value is, or has, one
}

// Entries are the keys that apply, in the order of Print.
func (c *Config) Entries() (list []Entry) {
	for _, k := range c.keys() {
		if c.applies(&k) {
			list = append(list, Entry{
				Key: k.Name, Value: k.Show(), Default: c.wrote[k.Name] == nil, From: c.origin(k.Name), Variable: variableOf(k.Name),
				Does: k.Does, More: k.More, Values: k.Values, Secret: k.Secrets != nil,
			})
		}
	}
	return list
}

// Print writes the effective configuration as YAML. Secrets are replaced, and a comment says where
// each value came from: a line of the file, a variable, or the defaults.
func (c *Config) Print(w io.Writer) error {
	var out bytes.Buffer
	var open []string
	for _, e := range c.Entries() {
		section, name, _ := cutLast(e.Key)
		open = openSection(&out, open, strings.Split(section, "."))
		line := strings.Repeat("  ", len(open)) + name + ": " + e.Value
		fmt.Fprintf(&out, "%s  # %s\n", strings.TrimRight(line, " "), e.From)
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

// keys are the keys of the configuration, bound to its fields.
func (c *Config) keys() []setting.Key {
	l := &loader{cfg: c, sections: map[string]sink.Settings{c.Sink.Driver.Name: c.Sink.Settings}}
	return l.fields()
}
