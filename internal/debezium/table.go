// What is made once for all rows of one shape.

package debezium

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/columns"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// table is a shape, read: its columns, and the schemas of its envelopes. It is safe for concurrent
// use.
type table struct {
	id, key, payload column
	route            error // what keeps the route from being one
	placed           []column
	version          column
	name             string // of its own schema
	number           uint64 // among those of the router
}

// column is one of its columns, or why rows cannot be rendered with it.
type column struct {
	*columns.Column
	err     error
	missing bool // and that is no error
}

// read makes a table of a shape.
func (o *Options) read(shape *event.Shape) *table {
	t := &table{
		id: o.column(shape, o.id), key: o.column(shape, o.key), payload: o.column(shape, o.payload),
		name: o.names.Schema(topicName(o.prefix+"."+shape.Schema+"."+shape.Table) + ".Value"),
	}
	if route := o.column(shape, o.route); route.err != nil {
		t.route = route.err
	} else if route.Schema.Type != connect.String {
		t.route = fmt.Errorf("column %q routes, but is of Connect's type %s, not string", o.route, route.Schema.Type)
	}
	for _, f := range o.placed {
		c := o.column(shape, f.column)
		c.missing = o.lenient && errors.Is(c.err, errMissing)
		if c.err == nil && f.where == asPartition && c.Schema.Type != connect.Int32 {
			c.err = fmt.Errorf("column %q is the partition, but is of Connect's type %s, not int32", f.column, c.Schema.Type)
		}
		t.placed = append(t.placed, c)
	}
	if o.version != "" {
		t.version = o.column(shape, o.version)
		if t.version.err == nil && t.version.Schema.Type != connect.Int32 {
			t.version.err = fmt.Errorf("column %q is the schema's version, but is of Connect's type %s, not int32", o.version, t.version.Schema.Type)
		}
	}
	return t
}

// topicName is the name of a table's own topic, which its schema is named after: what Kafka takes
// in no topic is "_", each unit of UTF-16 by itself, and what is longer than a topic may be is cut
// (AbstractTopicNamingStrategy.sanitizedTopicName).
func topicName(name string) string {
	const longest = 249
	var out []byte
	for _, unit := range utf16.Encode([]rune(name)) {
		alphabetic := unit >= 'a' && unit <= 'z' || unit >= 'A' && unit <= 'Z'
		if alphabetic || unit >= '0' && unit <= '9' || unit == '.' || unit == '_' || unit == '-' {
			out = append(out, byte(unit))
		} else {
			out = append(out, '_')
		}
	}
	return string(out[:min(len(out), longest)])
}

var errMissing = errors.New("the table has no such column")

func (o *Options) column(shape *event.Shape, name string) column {
	for _, s := range shape.Columns {
		if s.Name == name {
			c, err := columns.NewColumn(s, o.modes)
			return column{Column: c, err: err}
		}
	}
	return column{err: fmt.Errorf("column %q: %w", name, errMissing)}
}

// envelopeSchema is the schema of an envelope around a payload. It is each event's own: Debezium
// keeps, for all events with a payload of the same schema, that of the first one that its process
// saw, its name and its columns' NOT NULL and defaults, which no two runs have in common.
func (r *Router) envelopeSchema(t *table, payload *connect.Schema, version *int32, rec *Record, route []byte) *connect.Schema {
	if payload != t.payload.Schema {
		// an expanded payload: each has its own
		return t.newEnvelope(r.o, payload, version, string(route))
	}
	end := len(rec.scratch)
	defer func() { rec.scratch = rec.scratch[:end] }()
	rec.scratch = binary.BigEndian.AppendUint64(rec.scratch, t.number)
	if version != nil {
		rec.scratch = strconv.AppendInt(rec.scratch, int64(*version), 10)
	}
	rec.scratch = append(append(rec.scratch, ' '), route...)
	name := rec.scratch[end:]
	s, known := r.envelopes.get(name)
	if !known {
		s = t.newEnvelope(r.o, payload, version, string(route))
		r.envelopes.put(name, s, len(s.Name)+fieldBytes*len(s.Fields))
	}
	return s
}

// fieldBytes is what a field of a schema takes.
const fieldBytes = int(unsafe.Sizeof(connect.Field{}))

func (t *table) newEnvelope(o *Options, payload *connect.Schema, version *int32, route string) *connect.Schema {
	if version != nil {
		version = connect.Versioned(*version) // the caller's is for one event
	}
	last := strings.LastIndexByte(t.name, '.') // the routed value goes before the last part
	s := &connect.Schema{
		Type: connect.Struct, Name: t.name[:last+1] + route + t.name[last:], Version: version,
		Fields: []connect.Field{{Name: envelopePayload, Schema: payload}},
	}
	for i, f := range o.placed {
		if f.where == inEnvelope && !t.placed[i].missing {
			s.Fields = append(s.Fields, connect.Field{Name: f.alias, Schema: t.placed[i].Schema})
		}
	}
	return s
}

// convert makes the bytes of a column's text, nil for null.
func (rec *Record) convert(to converter.Converter, c *column, text []byte) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	v, scratch, err := c.Value(rec.scratch, text)
	rec.scratch = scratch
	if err != nil {
		return nil, err
	}
	return rec.write(to, c.Schema, v)
}

func (rec *Record) write(to converter.Converter, schema *connect.Schema, v connect.Value) ([]byte, error) {
	start := len(rec.Buf)
	out, null, err := to.Append(rec.Buf, start+rec.Budget.Left(), schema, v)
	if errors.Is(err, converter.ErrLimit) {
		rec.Budget.UseUp()
		return nil, event.ErrBytes
	}
	if err != nil {
		return nil, err
	}
	rec.Budget.Make(len(out) - start)
	if rec.Buf = out; null {
		return nil, nil
	}
	return rec.Since(start), nil
}
