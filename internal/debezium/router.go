// The Event Router: a row becomes a record.

package debezium

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Router is the sink.Encoder of a profile.
//
// Nothing is lost in it: an event of which it cannot make a record is refused for ever
// (sink.Permanent) and becomes a dead letter with all its columns, where Debezium's task would end.
// Its record depends on nothing that may differ at the next delivery but the options: a row that
// waits in the retry table carries the shape of its table and the destination it was going to, so
// it is rendered later as it would have been then. Options that were changed meanwhile apply to it,
// all but those that decide the destination.
type Router struct {
	o       *Options
	copies  sink.Encoder
	traits  sink.Traits
	placed  []int // the places in Event.Columns
	version int

	mu     sync.RWMutex
	tables map[*event.Shape]*table
	read   uint64 // tables so far

	envelopes cache[*connect.Schema] // by table, version and routed value
}

// maxTables bounds the shapes that are kept: a table has a new one each time it is described, and
// rows of the retry table may bring old ones.
const maxTables = 256

// Encoder gives the encoder for events whose extra columns are these; Options.Columns must be among
// them. copies makes the copies of dead letters: they are reports, in the relay's own format.
func (o *Options) Encoder(columns []string, copies sink.Encoder) (*Router, error) {
	r := &Router{o: o, copies: copies, tables: map[*event.Shape]*table{}, version: -1}
	r.traits.Partitions = o.profile == Connect && slices.ContainsFunc(o.placed, func(f placement) bool { return f.where == asPartition })
	place := func(name string) int { return slices.Index(columns, name) }
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

// What keeps an event from being rendered. They are shared by all events concerned, and hold
// nothing of a row.
var (
	errNoRoute = errors.New("the column of route.by.field is NULL, so there is no topic")
	noRoute    = sink.PermanentFault(sink.NullInTemplate, errNoRoute.Error())
	errNoShape = errors.New("the shape of its table is not known: it was deferred without sink.compat, and goes by the configuration of then, or by a version whose shapes this one cannot read")
)

// table is that of the event's row.
func (r *Router) table(ev *event.Event) (*table, error) {
	if ev.Shape == nil {
		return nil, errNoShape
	}
	r.mu.RLock()
	t := r.tables[ev.Shape]
	r.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	t = r.o.read(ev.Shape)
	r.mu.Lock()
	if len(r.tables) >= maxTables {
		clear(r.tables)
	}
	r.read++
	t.number = r.read
	r.tables[ev.Shape] = t
	r.mu.Unlock()
	return t, nil
}

// route makes the topic, and exchange and routing key unless the routing key is the record's key.
func (r *Router) route(ev *event.Event, rec *Record) error {
	if ev.Aggregate == nil {
		return errNoRoute
	}
	var err error
	if rec.Buf, err = r.o.topics.append(rec.Buf, ev.Aggregate, &rec.Budget); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	rec.Topic = rec.Since(0)
	if r.o.profile == Server {
		r.o.appendDestination(rec)
	}
	return nil
}

// place makes key and partition.
func (r *Router) place(ev *event.Event, t *table, rec *Record) (err error) {
	if t.route != nil {
		return t.route
	}
	if rec.Key, err = rec.convert(r.o.keys, &t.key, ev.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if r.o.profile == Server {
		if r.o.rabbit.source == fromKey {
			if rec.RoutingKey = rec.Key; rec.Key == nil {
				rec.RoutingKey = []byte{}
			}
		}
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

// partition takes the partition of a column; the last one counts. NULL is none, also where the
// column has a default.
func (r *Router) partition(ev *event.Event, c *column, at int, rec *Record) error {
	if c.err != nil {
		return c.err
	}
	rec.Partition = sink.ByKey
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
