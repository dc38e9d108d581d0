// The loader: the values that the file and the variables gave, reading a value, recording a fault.

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// loader gathers what the file and the variables say, gives it to the fields, and collects the
// faults.
type loader struct {
	cfg    *Config
	outbox *Outbox // the one that outbox keys are read into: the section's, or a table's
	env    map[string]string
	// by path: the value that a key has in the end, before it is read
	written map[string]*document.Node
	sinks   []mention // of the file, then of variables, each once
	faults  document.Faults

	wrongSink bool // the file names a sink that does not exist, which is a fault already
}

type mention struct {
	path  string
	where document.Place
}

func (l *loader) fault(where document.Place, key, what string) {
	l.faults = append(l.faults, &document.Fault{Where: where, Key: key, What: what})
}

// placeOf is where the value of a key was written, nowhere for a default.
func (l *loader) placeOf(path string) document.Place {
	if n, ok := l.written[path]; ok {
		return n.Where
	}
	return document.Place{}
}

// isFaulty reports whether the value of the key at path was refused: a fault that only follows from
// that is not reported.
func (l *loader) isFaulty(path string) bool {
	where := l.placeOf(path)
	return where != (document.Place{}) && slices.ContainsFunc(l.faults, func(f *document.Fault) bool { return f.Where == where })
}

// faultAt reports err, if it is one, about the key at path.
func (l *loader) faultAt(path string, err error) {
	if err != nil {
		l.fault(l.placeOf(path), path, err.Error())
	}
}

// scalar is the text of a single value, references replaced; false after a fault.
func (l *loader) scalar(path string, n *document.Node) (string, bool) {
	if n.Kind != document.Scalar {
		l.fault(n.Where, path, "wants a single value, has "+n.Kind.String())
		return "", false
	}
	value, err := document.Expand(n.Text, l.env)
	if err != nil {
		l.fault(n.Where, path, err.Error())
		return "", false
	}
	return value, true
}

// secret keeps the text with its references, and reads it once, so that a reference that cannot be
// read is reported now. An empty text of a variable counts as not set, because it cannot change. A
// file that is empty now may be filled later.
func (l *loader) secret(path string, n *document.Node, show func(text, value string) string) (Secret, bool) {
	value, ok := l.scalar(path, n)
	if !ok {
		return Secret{}, false
	}
	if value == "" && !strings.Contains(n.Text, "${file:") {
		return Secret{}, true
	}
	return Secret{text: n.Text, env: l.env, shown: show(n.Text, value)}, true
}

// column reads a column name, or a list of them: the first that the row has, not NULL, is used. ""
// means not mapped.
func (l *loader) column(path string, n *document.Node) Column {
	c := Column{Written: true}
	for _, item := range n.Values() {
		name, ok := l.scalar(path, item)
		switch {
		case !ok:
		case name == "" && n.Kind == document.List:
			l.fault(item.Where, path, "has an empty column name in its list")
		case name != "" && slices.Contains(c.Names, name):
			l.fault(item.Where, path, fmt.Sprintf("has column %q twice", name))
		case name != "":
			c.Names = append(c.Names, name)
		}
	}
	return c
}

// named reads a mapping of a header or property to its one column, in the order written; check
// refuses a name.
func (l *loader) named(path string, n *document.Node, check func(name string) error) []NamedColumn {
	if n.Kind != document.Mapping {
		l.fault(n.Where, path, "wants a mapping of name: column, has "+n.Kind.String())
		return nil
	}
	var read []NamedColumn
	for _, e := range n.Entries {
		at := join(path, e.Name)
		if err := check(e.Name); err != nil {
			l.fault(e.Where, at, err.Error())
			continue
		}
		column, ok := l.scalar(at, e.Value)
		switch {
		case ok && column == "":
			l.fault(e.Value.Where, at, "wants the name of a column")
		case ok:
			read = append(read, NamedColumn{Name: e.Name, Column: Column{Names: []string{column}, Written: true}})
		}
	}
	return read
}

// reserved are the header names that the relay writes itself or leaves to a consumer's retry, with
// any sink and with one.
var (
	reserved       = []string{"cdc_position", "cdc_replay", "traceparent", "x-retry-count"}
	reservedBySink = map[string][]string{
		"sink.rabbitmq": {"aggregate_type", "aggregate_id", "timestamp_in_ms"},
		"sink.kafka":    {"id", "eventType", "aggregateType"},
	}
)

const maxHeaderName = 255 // bytes: the limit of AMQP 0-9-1. Kafka has none

func (l *loader) checkHeader(name string) error {
	ours := reserved
	for _, m := range l.sinks {
		ours = slices.Concat(reservedBySink[m.path], ours)
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

var propertyNames = []string{"correlation_id", "priority", "expiration"}

func checkProperty(name string) error {
	if !slices.Contains(propertyNames, name) {
		return errors.New("unknown property" + orNearest(name, propertyNames))
	}
	return nil
}

// validateTemplate refuses a template that names a part of the event that no column is mapped to.
// Columns that it names itself are looked for in the tables, at the start.
func (l *loader) validateTemplate(path string, t sink.Template) {
	if l.cfg.Sink.Compat.Profile != "" {
		return // it is not used
	}
	for _, table := range l.cfg.Source.Tables {
		l.validateUses(path, t, table.Outbox, "column of "+table.String())
	}
	if l.cfg.Source.MessagePrefix != "" {
		l.validateUses(path, t, l.cfg.Outbox, "member of messages")
	}
}

// validateUses compares the template with one mapping; what describes the mapping.
func (l *loader) validateUses(path string, t sink.Template, o Outbox, what string) {
	where := l.placeOf(path)
	mapped := map[string]Column{"aggregate": o.Aggregate, "key": o.Key, "type": o.Type}
	for _, part := range t.Uses() {
		if column, ok := mapped[part]; !ok || column.Mapped() {
			continue
		}
		if where == (document.Place{}) {
			where = l.placeOf("outbox." + part) // the template is the default, so that was written
		}
		l.fault(where, path, fmt.Sprintf("%q uses {%s}, but no %s is mapped to it; map one in the outbox section, or write the template without it", t, part, what))
	}
}

// withoutTLS refuses settings that look like TLS and leave it off: the password would cross the
// network in the clear.
func (l *loader) withoutTLS(section string, t *TLS, why string) {
	for key, value := range map[string]string{"ca": t.CA, "cert": t.Cert, "key": t.Key, "server_name": t.ServerName} {
		if value != "" {
			l.faultAt(section+key, errors.New(why))
		}
	}
}

func (l *loader) validateKey(path string, t *TLS) {
	if t.Key != "" && t.Cert == "" {
		l.faultAt(path, errors.New("is the key of no certificate: tls.cert is not set"))
	}
}
