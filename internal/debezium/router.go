// The Event Router: a row becomes a record.

package debezium

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Router makes records. It is safe for concurrent use.
//
// Nothing is lost in it: an event of which it cannot make a record is refused for ever (sink.Permanent) and becomes a dead letter
// with all its columns, where Debezium's task would end. Its record depends on nothing that may differ at the next delivery but the
// options: a row that waits in the siding carries the shape of its table and the destination it was going to, so it is rendered
// later as it would have been then. Options that were changed meanwhile apply to it, all but those that decide the destination.
type Router struct {
	o       *Options
	shape   int // the places in Event.Columns
	placed  []int
	version int

	mu     sync.RWMutex
	tables map[string]known // by the shape's bytes
}

// known is a shape that was met.
type known struct {
	table *table
	err   error
}

// maxTables bounds the shapes that are kept: rows of the siding may bring old ones.
const maxTables = 256

// Bind gives the router for events whose extra columns are these; Options.Columns must be among them.
func (o *Options) Bind(columns []string) (*Router, error) {
	r := &Router{o: o, tables: map[string]known{}, version: -1}
	place := func(name string) int { return slices.Index(columns, name) }
	if r.shape = place(outbox.ShapeColumn); r.shape < 0 {
		return nil, errors.New("the shape of the tables is not read")
	}
	for _, f := range o.placed {
		i := place(f.column)
		if i < 0 {
			return nil, fmt.Errorf("column %q is not read", f.column)
		}
		r.placed = append(r.placed, i)
	}
	if o.version != "" {
		if r.version = place(o.version); r.version < 0 {
			return nil, fmt.Errorf("column %q is not read", o.version)
		}
	}
	return r, nil
}

// What keeps an event from being rendered. They are shared by all events concerned, and hold nothing of a row.
var (
	// ErrNoRoute is a NULL in the column that routes.
	ErrNoRoute = errors.New("the column of route.by.field is NULL, so there is no topic")
	errNoShape = errors.New("the shape of its table is not known: it was parked without sink.compat, and goes by the configuration of then")
)

// table is that of the event's row.
func (r *Router) table(ev *outbox.Event) (*table, error) {
	if r.shape >= len(ev.Columns) || ev.Columns[r.shape] == nil {
		return nil, errNoShape
	}
	shape := ev.Columns[r.shape]
	r.mu.RLock()
	k, met := r.tables[string(shape)]
	r.mu.RUnlock()
	if met {
		return k.table, k.err
	}
	k.table, k.err = r.o.read(shape)
	r.mu.Lock()
	if len(r.tables) >= maxTables {
		clear(r.tables)
	}
	r.tables[string(shape)] = k
	r.mu.Unlock()
	return k.table, k.err
}

// Topic appends the event's topic to dst. It does not look at the shape.
func (r *Router) Topic(ev *outbox.Event, dst []byte) ([]byte, error) {
	if ev.Aggregate == nil {
		return dst, ErrNoRoute
	}
	return r.o.topics.append(dst, ev.Aggregate), nil
}

// Placed makes what decides where the record goes: topic, key and partition, and for RabbitMQ exchange and routing key.
func (r *Router) Placed(ev *outbox.Event, rec *Record) error {
	rec.reset()
	t, err := r.table(ev)
	if err != nil {
		return err
	}
	return r.place(ev, t, rec)
}

func (r *Router) place(ev *outbox.Event, t *table, rec *Record) (err error) {
	if t.route != nil {
		return t.route
	}
	if rec.buf, err = r.Topic(ev, rec.buf); err != nil {
		return err
	}
	rec.Topic = rec.since(0)
	if rec.Key, err = rec.convert(r.o.keys, &t.key, ev.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if r.o.profile == Server {
		rec.Exchange, rec.RoutingKey, rec.buf = r.o.appendDestination(rec.buf, rec.Topic, rec.Key)
		return nil // its sinks carry no partition
	}
	for i, f := range r.o.placed {
		if f.where == asPartition && !t.placed[i].missing {
			if err := r.partition(ev, &t.placed[i], r.placed[i], rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// partition takes the partition of a column; the last one counts. NULL is none, also where the column has a default.
func (r *Router) partition(ev *outbox.Event, c *column, at int, rec *Record) error {
	if c.err != nil {
		return c.err
	}
	rec.Partition = -1
	if ev.Columns[at] == nil {
		return nil
	}
	v, scratch, err := c.Value(rec.scratch, ev.Columns[at])
	rec.scratch = scratch
	switch {
	case err != nil:
		return err
	case v.Int < 0:
		return errors.New("the partition is below 0")
	}
	rec.Partition = int32(v.Int)
	return nil
}

// convert makes the bytes of a column's text, nil for null.
func (rec *Record) convert(to connect.Converter, c *column, text []byte) ([]byte, error) {
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

func (rec *Record) write(to connect.Converter, schema *connect.Schema, v connect.Value) ([]byte, error) {
	start := len(rec.buf)
	out, null, err := to.Append(rec.buf, schema, v)
	if err != nil {
		return nil, err
	}
	if rec.buf = out; null {
		return nil, nil
	}
	return rec.since(start), nil
}

// Build makes the event's record, or says why there is none. The error holds nothing of the row.
func (r *Router) Build(ev *outbox.Event, rec *Record) error {
	rec.reset()
	t, err := r.table(ev)
	if err != nil {
		return err
	}
	if err := r.place(ev, t, rec); err != nil {
		return err
	}
	rec.Time = ev.Time.UnixMilli()
	if r.o.profile == Server {
		rec.Time = ev.CommitTime.UnixMilli() // its sink for Kafka gives no time, and the producer takes its clock's
	}
	if err := r.headers(ev, t, rec); err != nil {
		return err
	}
	return r.value(ev, t, rec)
}

// headers makes the header id, then the columns that are headers, in the order of the option. The four headers
// __debezium.context.* are left out: one of them is a random number of Debezium's run.
func (r *Router) headers(ev *outbox.Event, t *table, rec *Record) error {
	if err := r.header(rec, "id", &t.id, ev.ID); err != nil {
		return err
	}
	for i, f := range r.o.placed {
		if f.where == inHeader && !t.placed[i].missing {
			if err := r.header(rec, f.alias, &t.placed[i], ev.Columns[r.placed[i]]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Router) header(rec *Record, name string, c *column, text []byte) error {
	value, err := rec.convert(r.o.headers, c, text)
	if err != nil {
		return fmt.Errorf("header %q: %w", name, err)
	}
	if value == nil && r.o.profile == Server {
		return nil // its engine leaves out what the converter gives nothing for
	}
	rec.Headers = append(rec.Headers, Header{Name: name, Value: value})
	return nil
}

// value makes the value: the payload, or an envelope around it and the columns that are members.
func (r *Router) value(ev *outbox.Event, t *table, rec *Record) error {
	if t.payload.err != nil {
		return t.payload.err
	}
	payload, err := r.payload(ev, t, rec)
	if err != nil {
		return err
	}
	schema, v := t.payload.Schema, payload
	if r.o.expand && payload.Kind == connect.Text {
		if schema, v, err = r.expand(t, payload); err != nil {
			return err
		}
		payload = v
	}
	if r.o.enveloped() {
		if schema, v, err = r.envelope(ev, t, rec, schema, payload); err != nil {
			return err
		}
	}
	if r.o.tombstones && isEmpty(payload) {
		schema, v = nil, connect.Value{}
	}
	if rec.Value, err = rec.write(r.o.values, schema, v); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	return nil
}

// payload is the payload's value. That of a bytea column was decoded when the row was read.
func (r *Router) payload(ev *outbox.Event, t *table, rec *Record) (connect.Value, error) {
	of := t.payload.Value
	if ev.PayloadKind == outbox.Binary {
		of = t.payload.Binary
	}
	v, scratch, err := of(rec.scratch, ev.Payload)
	rec.scratch = scratch
	return v, err
}

// expand makes a struct of a payload that is JSON text. Where Debezium says in a warning that it does not, the payload stays what
// it is.
func (r *Router) expand(t *table, payload connect.Value) (*connect.Schema, connect.Value, error) {
	x, err := r.o.expander.Expand(payload.Data)
	switch {
	case err != nil:
		return nil, connect.Value{}, fmt.Errorf("expand the payload: %w", err)
	case x.Unchanged:
		return t.payload.Schema, payload, nil
	case x.Schema == nil && r.o.enveloped():
		return nil, connect.Value{}, errors.New("the expanded payload has no schema, and so no place in an envelope")
	}
	return x.Schema, x.Value, nil
}

// isEmpty reports whether a payload is a tombstone: null, or text that is nothing but what Java's trim takes away.
func isEmpty(v connect.Value) bool {
	if v.Kind != connect.Text {
		return v.Kind == connect.Null
	}
	for _, c := range v.Data {
		if c > ' ' {
			return false
		}
	}
	return true
}

func (r *Router) envelope(ev *outbox.Event, t *table, rec *Record, payloadSchema *connect.Schema, payload connect.Value) (*connect.Schema, connect.Value, error) {
	rec.items = append(rec.items[:0], payload)
	for i, f := range r.o.placed {
		c := &t.placed[i]
		if f.where != inEnvelope || c.missing {
			continue
		}
		if c.err != nil {
			return nil, connect.Value{}, c.err
		}
		v, scratch, err := c.Value(rec.scratch, ev.Columns[r.placed[i]])
		rec.scratch = scratch
		if err != nil {
			return nil, connect.Value{}, err
		}
		rec.items = append(rec.items, v)
	}
	version, err := r.schemaVersion(ev, t, rec)
	if err != nil {
		return nil, connect.Value{}, err
	}
	schema := t.envelope(r.o, payloadSchema, version, rec, ev.Aggregate)
	return schema, connect.Value{Kind: connect.Record, Items: rec.items}, nil
}

// schemaVersion is that of the envelope's schema; nil: none. A NULL is none, too.
func (r *Router) schemaVersion(ev *outbox.Event, t *table, rec *Record) (*int32, error) {
	if r.version < 0 || t.version.err != nil {
		return nil, t.version.err
	}
	if ev.Columns[r.version] == nil {
		return nil, nil
	}
	v, scratch, err := t.version.Value(rec.scratch, ev.Columns[r.version])
	rec.scratch, rec.version = scratch, int32(v.Int)
	return &rec.version, err
}
