// The loader: the values that the file and the variables gave, reading a value, recording a fault.

package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// loader gathers what the file and the variables say, gives it to the fields, and collects the
// faults.
type loader struct {
	setting.Reader
	cfg      *Config
	sections map[string]sink.Settings // of the sinks, by name
	sinks    []mention                // of the file, then of variables, each once

	wrongSink bool // the file names a sink that does not exist, which is a fault already
}

type mention struct {
	path  string
	where document.Place
}

func (m mention) driver() *sink.Driver { return drivers.Named(strings.TrimPrefix(m.path, "sink.")) }

// column reads a column name, or a list of them: the first that the row has, not NULL, is used. ""
// means not mapped.
func (l *loader) column(path string, n *document.Node) Column {
	c := Column{Written: true}
	for _, item := range n.Values() {
		name, ok := l.Scalar(path, item)
		switch {
		case !ok:
		case name == "" && n.Kind == document.List:
			l.Fault(item.Where, path, "has an empty column name in its list")
		case name != "" && slices.Contains(c.Names, name):
			l.Fault(item.Where, path, fmt.Sprintf("has column %q twice", name))
		case name != "":
			c.Names = append(c.Names, name)
		}
	}
	return c
}

const maxHeaderName = 255 // bytes: the limit of AMQP 0-9-1. Kafka has none

func (l *loader) checkHeader(name string) error {
	ours := sink.ReservedHeaders
	for _, m := range l.sinks {
		ours = slices.Concat(m.driver().Reserved, ours)
	}
	switch {
	case name == "":
		return fmt.Errorf("has a header without a name")
	case len(name) > maxHeaderName:
		return fmt.Errorf("is longer than %d bytes, the most a header's name may have", maxHeaderName)
	case slices.Contains(ours, name):
		return fmt.Errorf("is a header that the relay writes or reserves (%s); choose another name", strings.Join(ours, ", "))
	}
	return nil
}

// validateTemplate refuses a template that names a part of the event that no column is mapped to.
// Columns that it names itself are looked for in the tables, at the start.
func (l *loader) validateTemplate(path string, t sink.Template) {
	for _, table := range l.cfg.Source.Tables {
		l.validateUses(path, t, table.Outbox, "column of "+table.String())
	}
	if l.cfg.Source.MessagePrefix != "" {
		l.validateUses(path, t, l.cfg.Outbox, "member of messages")
	}
}

// validateUses compares the template with one mapping; what describes the mapping.
func (l *loader) validateUses(path string, t sink.Template, o Outbox, what string) {
	where := l.PlaceOf(path)
	mapped := map[string]Column{"aggregate": o.Aggregate, "key": o.Key, "type": o.Type}
	for _, part := range t.Uses() {
		if column, ok := mapped[part]; !ok || column.Mapped() {
			continue
		}
		if where == (document.Place{}) {
			where = l.PlaceOf("outbox." + part) // the template is the default, so that was written
		}
		l.Fault(where, path, fmt.Sprintf("%q uses {%s}, but no %s is mapped to it; map one in the outbox section, or write the template without it", t, part, what))
	}
}
