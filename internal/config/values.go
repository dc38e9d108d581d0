package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// scalar is the text of a single value, references replaced; false after a fault.
func (l *loader) scalar(path string, n *node) (string, bool) {
	if n.kind != scalar {
		l.fault(n.where, path, "wants a single value, has "+n.kind.String())
		return "", false
	}
	value, err := expand(n.text, l.env)
	if err != nil {
		l.fault(n.where, path, err.Error())
		return "", false
	}
	return value, true
}

// secret keeps the text with its references and reads it once, to find out now what cannot be read. One that is empty for
// ever, because its variable is, is not set; a file that is empty now may be filled later.
func (l *loader) secret(path string, n *node, show func(text, value string) string) (Secret, bool) {
	value, ok := l.scalar(path, n)
	if !ok {
		return Secret{}, false
	}
	if value == "" && !strings.Contains(n.text, "${file:") {
		return Secret{}, true
	}
	return Secret{text: n.text, env: l.env, shown: show(n.text, value)}, true
}

// column reads a name, or a list of names of which the first is meant that a row has and that is not NULL there; "" is not mapped.
func (l *loader) column(path string, n *node) Column {
	c := Column{Written: true}
	for _, item := range n.orItself() {
		name, ok := l.scalar(path, item)
		switch {
		case !ok:
		case name == "" && n.kind == list:
			l.fault(item.where, path, "has an empty column name in its list")
		case name != "" && slices.Contains(c.Names, name):
			l.fault(item.where, path, fmt.Sprintf("has column %q twice", name))
		case name != "":
			c.Names = append(c.Names, name)
		}
	}
	return c
}

// named reads a mapping of a header or property to its one column, in the order written; check refuses a name.
func (l *loader) named(path string, n *node, check func(name string) error) []NamedColumn {
	if n.kind != mapping {
		l.fault(n.where, path, "wants a mapping of name: column, has "+n.kind.String())
		return nil
	}
	var read []NamedColumn
	for _, e := range n.entries {
		at := join(path, e.name)
		if err := check(e.name); err != nil {
			l.fault(e.where, at, err.Error())
			continue
		}
		column, ok := l.scalar(at, e.value)
		switch {
		case ok && column == "":
			l.fault(e.value.where, at, "wants the name of a column")
		case ok:
			read = append(read, NamedColumn{Name: e.name, Column: Column{Names: []string{column}, Written: true}})
		}
	}
	return read
}

// orItself is the items of a list, or a single value as a list of one.
func (n *node) orItself() []*node {
	if n.kind == list {
		return n.items
	}
	return []*node{n}
}

// reserved are the header names that the relay writes itself or leaves to a consumer's retry, with any sink and with one.
var (
	reserved       = []string{"cdc_position", "cdc_replay", "traceparent", "x-retry-count"}
	reservedBySink = map[string][]string{
		"sink.rabbitmq": {"aggregate_type", "aggregate_id", "timestamp_in_ms"},
		"sink.kafka":    {"id", "eventType", "aggregateType"},
	}
)

const maxHeaderName = 255 // bytes; of AMQP 0-9-1, whose header names are short strings. Kafka sets no limit

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
