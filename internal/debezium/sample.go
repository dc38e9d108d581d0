// A row that stands for any, for the test message of `check --publish`.

package debezium

import (
	"encoding/hex"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

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
func wantsBytes(c converter.Converter) bool {
	switch c := c.(type) {
	case converter.ByteArrayConverter:
		return true
	case converter.BinaryDataConverter:
		return c.Delegate == nil
	}
	return false
}
