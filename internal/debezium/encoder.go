// Package debezium makes of an outbox row the record that Debezium's Outbox Event Router makes of
// it, behind its PostgreSQL connector in Kafka Connect or in Debezium Server: topic, key, value,
// headers, timestamp and partition, byte for byte.
//
// It is pure: no I/O, no clock, no goroutine. A record depends on the options, the row and the
// shape of the row's table, all of which an event of the retry table has or had: the same event
// gives the same record at every delivery.
package debezium

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

var _ sink.Encoder = (*Router)(nil)

// Traits implements sink.Encoder. Events may differ in their destination, and an event whose
// routing column is NULL has none.
func (r *Router) Traits() sink.Traits { return r.traits }

// Place implements sink.Encoder. The topic depends neither on the shape nor on the key. A row whose
// key or partition cannot be rendered is placed by the key as it is in the row.
func (r *Router) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	if ev.Copy {
		return r.copies.Place(ev, rec)
	}
	rec.ResetPlace(ev)
	own := recordOf(rec)
	none := r.route(ev, own)
	t, err := r.table(ev)
	if err == nil {
		err = r.place(ev, t, own)
	}
	if err != nil {
		if rec.Key, rec.Partition = ev.Key, sink.ByKey; len(ev.Key) == 0 {
			rec.Partition = sink.Anywhere
		}
	}
	if none != nil {
		return faultOf(none)
	}
	return nil
}

// Encode implements sink.Encoder.
func (r *Router) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	if ev.Copy {
		return r.copies.Encode(ev, rec)
	}
	rec.Reset(ev)
	own := recordOf(rec)
	err := r.build(ev, own)
	clear(own.items) // they alias the event, and are written
	if err != nil {
		return faultOf(err)
	}
	return nil
}

// faultOf is the fault of an event of which there is no record. It is the event's own, and for
// ever: Debezium's task would end over it.
func faultOf(err error) *sink.Fault {
	switch {
	case errors.Is(err, errNoRoute):
		return noRoute
	case errors.Is(err, event.ErrBytes), errors.Is(err, event.ErrWork):
		return sink.OverBudget(err)
	}
	return sink.PermanentFault(sink.Invalid, err.Error())
}

// Record is a record under way: what is made, and the scratch space that it keeps as its Own.
type Record struct {
	*sink.Record

	scratch []byte          // what values refer to
	items   []connect.Value // of an envelope
	version int32           // of its schema
}

// recordOf is rec, which is empty, with the scratch space that it has from its last use.
func recordOf(rec *sink.Record) *Record {
	own, _ := rec.Scratch.(*Record)
	if own == nil {
		own = new(Record)
		rec.Scratch = own
	}
	*own = Record{Record: rec, scratch: sink.ReuseBuffer(own.scratch), items: own.items[:0]}
	return own
}

// Forget drops a scratch space that has grown for an unusual event. It is not that of the
// sink.Record, which calls it.
func (rec *Record) Forget() { rec.scratch = sink.ReuseBuffer(rec.scratch) }

// build makes the event's record, or says why there is none. The error holds nothing of the row.
func (r *Router) build(ev *event.Event, rec *Record) error {
	t, err := r.table(ev)
	if err != nil {
		return err
	}
	if err := r.route(ev, rec); err != nil {
		return err
	}
	if err := r.place(ev, t, rec); err != nil {
		return err
	}
	// towards 1970, as Java divides: the last moment before it is 0, and not refused
	rec.Time = ev.Time.UnixMicro() / 1000
	if r.o.profile == Server {
		// its sink for Kafka gives no time, and the producer takes its clock's
		rec.Time = ev.CommitTime.UnixMilli()
		rec.Properties.Transient, rec.Properties.NullBody = r.o.rabbit.transient, r.o.rabbit.null
	}
	if err := r.headers(ev, t, rec); err != nil {
		return err
	}
	return r.value(ev, t, rec)
}

// headers makes the header id, then the columns that are headers, in the order of the option. The
// four headers __debezium.context.* are left out: one of them is a random number of Debezium's run.
func (r *Router) headers(ev *event.Event, t *table, rec *Record) error {
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
	kind := sink.Bytes
	if r.o.textHeaders {
		kind = sink.Text
	}
	rec.Headers = append(rec.Headers, sink.Header{Name: name, Value: value, Kind: kind})
	return nil
}

// value makes the value: the payload, or an envelope around it and the columns that are members.
func (r *Router) value(ev *event.Event, t *table, rec *Record) error {
	if t.payload.err != nil {
		return t.payload.err
	}
	payload, err := r.payload(ev, t, rec)
	if err != nil {
		return err
	}
	schema, v := t.payload.Schema, payload
	if r.o.expand && payload.Kind == connect.Text {
		if schema, v, err = r.expand(t, payload, &rec.Budget); err != nil {
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
	if rec.Value, err = rec.writeValue(r.o.values, schema, v); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	return nil
}

// payload is the payload's value. That of a bytea column was decoded when the row was read.
func (r *Router) payload(ev *event.Event, t *table, rec *Record) (connect.Value, error) {
	of := t.payload.Value
	if ev.PayloadKind == event.Binary {
		of = t.payload.Binary
	}
	v, scratch, err := of(rec.scratch, ev.Payload)
	rec.scratch = scratch
	return v, err
}

// expand makes a struct of a payload that is JSON text. Where Debezium says in a warning that it
// does not, the payload stays what it is.
func (r *Router) expand(t *table, payload connect.Value, budget *event.Budget) (*connect.Schema, connect.Value, error) {
	x, err := r.o.expander.Expand(payload.Data, budget)
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

// isEmpty reports whether a payload is a tombstone: null, or text that is nothing but what Java's
// trim takes away.
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

func (r *Router) envelope(ev *event.Event, t *table, rec *Record, payloadSchema *connect.Schema, payload connect.Value) (*connect.Schema, connect.Value, error) {
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
	if !rec.Budget.Make(len(t.name) + len(ev.Aggregate)) {
		return nil, connect.Value{}, rec.Budget.Err()
	}
	schema := r.envelopeSchema(t, payloadSchema, version, rec, ev.Aggregate)
	return schema, connect.Value{Kind: connect.Record, Items: rec.items}, nil
}

// schemaVersion is the version of the envelope's schema; nil: it has no version, as when the column
// is NULL.
func (r *Router) schemaVersion(ev *event.Event, t *table, rec *Record) (*int32, error) {
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

// appendDestination fills in exchange and routing key; the record's topic is made already. The
// routing key is left out when it is the record's key.
func (o *Options) appendDestination(rec *Record) {
	rec.Exchange = rec.Topic
	if o.rabbit.exchange != "" {
		rec.Exchange = rec.append(o.rabbit.exchange)
	}
	switch o.rabbit.source {
	case "topic":
		rec.RoutingKey = rec.Topic
	case "":
		rec.RoutingKey = rec.append(o.rabbit.routingKey)
	}
}

// append appends a text to Buf.
func (rec *Record) append(text string) []byte {
	start := len(rec.Buf)
	rec.Buf = append(rec.Buf, text...)
	return rec.MadeSince(start)
}
