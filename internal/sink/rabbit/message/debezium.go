// Messages as Debezium Server sends them. Unlike there each is mandatory: what is routed nowhere
// comes back.

package message

import (
	"errors"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Profiled reports whether a profile makes the event's message. It does not make a dead letter's
// copy: that has the relay's own form.
func (l *Layout) Profiled(ev *event.Event) bool { return l.Router != nil && !ev.Copy }

// placed fills in exchange and routing key by the profile.
func (m *Message) placed(ev *event.Event) (field string, ok bool) {
	if err := m.Layout.Router.Placed(ev, &m.record); err != nil {
		return "exchange", false
	}
	m.Exchange, m.RoutingKey = text(m.record.Exchange), text(m.record.RoutingKey)
	return "", true
}

// render makes the message by the profile: delivery mode, headers and body, and nothing else.
// Nothing of the relay's own is added.
func (m *Message) render(ev *event.Event) *sink.Fault {
	rec := &m.record
	if err := m.Layout.Router.Build(ev, rec); err != nil {
		return unrendered(err)
	}
	m.Exchange, m.RoutingKey = text(rec.Exchange), text(rec.RoutingKey)
	if ev.Route != nil {
		if field, ok := m.routed(ev.Route); !ok {
			return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Text: field + " has no value"}
		}
	}
	headers := m.Pub.Headers
	clear(headers)
	m.Pub = amqp.Publishing{Headers: headers, DeliveryMode: amqp.Persistent, Body: rec.Value}
	if m.Layout.options.Transient() {
		m.Pub.DeliveryMode = amqp.Transient
	}
	if rec.Value == nil {
		m.Pub.Body = m.Layout.options.NullValue()
	}
	m.TableSize = 0
	for i := range rec.Headers {
		m.rendered(&rec.Headers[i])
	}
	return nil
}

// rendered writes one header; of a name that is there twice the last one stays, as in Java's map.
func (m *Message) rendered(h *debezium.Header) {
	if m.Layout.options.TextHeaders() {
		m.setText(h.Name, h.Value)
		return
	}
	m.set(h.Name, h.Value, 4+len(h.Value))
}

// unrendered is the fault of an event that the profile makes no message of. It is the event's own,
// and for ever: Debezium Server would end over it.
func unrendered(err error) *sink.Fault {
	if errors.Is(err, debezium.ErrNoRoute) {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Text: err.Error()}
	}
	return Invalid(err.Error())
}

// records are scratch space to compute where an event goes, for several goroutines.
var records = sync.Pool{New: func() any { return new(debezium.Record) }}

// placedBy calls use with the exchange and routing key that a profile makes, valid during the call;
// nil of an event without them. One of which there is no record may have them all the same: when it
// is fixed and replayed it goes there.
func (l *Layout) placedBy(ev *event.Event, use func(exchange, routingKey []byte)) {
	rec := records.Get().(*debezium.Record)
	defer records.Put(rec)
	_ = l.Router.Placed(ev, rec) //nolint:errcheck // the event is refused when it is built
	use(rec.Exchange, rec.RoutingKey)
}
