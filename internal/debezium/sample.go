// What is said of the options before there are rows: types that do not fit, destinations as
// templates, a row that stands for any.

package debezium

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Misfits says what is wrong with the types of the columns that the options name. A column that is
// not there is none of them.
func (o *Options) Misfits(shapes []event.ColumnShape) []string {
	var found []string
	check := func(option, name string, wants ...connect.Type) {
		i := slices.IndexFunc(shapes, func(c event.ColumnShape) bool { return c.Name == name })
		if i < 0 {
			return
		}
		c, err := connect.NewColumn(shapes[i], o.modes)
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("%s: %s", option, err))
		case len(wants) > 0 && !slices.Contains(wants, c.Schema.Type):
			found = append(found, fmt.Sprintf("%s: column %q is of Connect's type %s, wanted %s", option, name, c.Schema.Type, wants[0]))
		}
	}
	check(optionID, o.id)
	check(optionRoute, o.route, connect.String)
	check(optionKey, o.key)
	check(optionPayload, o.payload)
	if o.version != "" {
		check(optionVersion, o.version, connect.Int32)
	}
	for _, f := range o.placed {
		switch {
		case f.where != asPartition:
			check(optionPlacement, f.column)
		case o.profile == Connect:
			// Server's sinks choose the partition themselves, whatever the column has
			check(optionPlacement, f.column, connect.Int32)
		}
	}
	return found
}

// Templates are the topic, and RabbitMQ's exchange and routing key. A part of a topic that a
// regular expression takes from the routed value stands there as {aggregate}, or as {key} when the
// column that routes is that of the key: keys may be about people, and what is made from them is
// not shown.
func (o *Options) Templates() (topic, exchange, routingKey string) {
	part := "{aggregate}"
	if o.route == o.key {
		part = "{key}"
	}
	topic = o.topics.pattern(part)
	if exchange = o.rabbit.exchange; exchange == "" {
		exchange = topic
	}
	switch o.rabbit.source {
	case "topic":
		routingKey = topic
	case "key":
		routingKey = "{key}"
	default:
		routingKey = o.rabbit.routingKey
	}
	return topic, exchange, routingKey
}

// Sample gives an event of text columns the shape of a table that it could be of: what the
// converters take.
func (o *Options) Sample(ev *event.Event) {
	s := &event.Shape{Schema: "public", Table: "outbox"}
	add := func(name string, oid uint32) {
		if !slices.ContainsFunc(s.Columns, func(c event.ColumnShape) bool { return c.Name == name }) {
			s.Columns = append(s.Columns, event.ColumnShape{Name: name, TypeOID: oid, Typmod: -1})
		}
	}
	add(o.id, pgtype.TextOID)
	add(o.route, pgtype.TextOID)
	if wantsBytes(o.keys) && ev.Key != nil {
		add(o.key, pgtype.ByteaOID)
		ev.Key = hex.AppendEncode([]byte(`\x`), ev.Key)
	}
	add(o.key, pgtype.TextOID)
	if ev.PayloadKind = event.JSON; wantsBytes(o.values) {
		ev.PayloadKind = event.Binary
		add(o.payload, pgtype.ByteaOID)
	}
	add(o.payload, pgtype.JSONBOID)
	for _, f := range o.placed {
		if f.where == asPartition {
			add(f.column, pgtype.Int4OID)
		}
	}
	if o.version != "" {
		add(o.version, pgtype.Int4OID)
	}
	for _, f := range o.placed {
		add(f.column, pgtype.TextOID)
	}
	ev.Shape = s
}

// wantsBytes reports whether a converter takes nothing but bytes.
func wantsBytes(c Converter) bool {
	switch c := c.(type) {
	case ByteArrayConverter:
		return true
	case BinaryDataConverter:
		return c.Delegate == nil
	}
	return false
}
