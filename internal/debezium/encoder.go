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

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

var _ sink.Encoder = (*Router)(nil)

// Traits implements sink.Encoder. No destination is that of all events: one whose routing column is
// NULL has none.
func (r *Router) Traits() sink.Traits { return r.traits }

// Place implements sink.Encoder. The topic depends neither on the shape nor on the key. A row whose
// key or partition cannot be rendered is placed by the key as it is in the row.
func (r *Router) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	if ev.Copy {
		return r.copies.Place(ev, rec)
	}
	rec.Unplace(ev)
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
