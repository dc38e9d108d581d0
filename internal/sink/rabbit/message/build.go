// How an event becomes a message.

package message

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Destination fills in exchange and routing key, or returns that one of them has no value.
func (m *Message) Destination(ev *event.Event) *sink.Fault {
	if m.Copy = ev.Copy; ev.Route == nil {
		if fault := m.Layout.Large.Place(m.Layout.encoder, ev, &m.record); fault != nil {
			return fault
		}
	}
	return m.to(ev.Route)
}

// to takes the destination of a route; nil: that of the record.
func (m *Message) to(route *event.Route) *sink.Fault {
	exchange, routingKey := m.record.Exchange, m.record.RoutingKey
	if route != nil {
		exchange, routingKey = route.Name, route.RoutingKey
	}
	m.Exchange, m.RoutingKey = text(exchange), text(routingKey)
	if exchange == nil || routingKey == nil {
		return nowhere(exchange != nil)
	}
	return nil
}

// Enter is called before Build, and Leave when the message is written or dropped: see sink.Large.
func (m *Message) Enter(alone bool) { m.Layout.Large.Enter(&m.record, alone) }

// Leave ends what Enter began. again: the message is to be made once more, alone.
func (m *Message) Leave(alone bool) (again bool) { return m.Layout.Large.Leave(&m.record, alone) }

// Build makes the message, or returns why the event can never become one.
func (m *Message) Build(ev *event.Event) *sink.Fault {
	if fault := sink.RowFault(ev); fault != nil {
		return fault
	}
	m.Copy = ev.Copy
	if fault := m.Layout.encoder.Encode(ev, &m.record); fault != nil {
		return fault
	}
	if fault := m.to(ev.Route); fault != nil {
		return fault
	}
	if fault := m.fill(); fault != nil {
		return fault
	}
	return m.check()
}

// fill makes the message of the record.
func (m *Message) fill() *sink.Fault {
	rec := &m.record
	p := &rec.Properties
	m.Pub = amqp.Publishing{
		Headers: emptied(m.Pub.Headers), DeliveryMode: amqp.Persistent, Body: rec.Value, ContentType: p.ContentType, MessageId: text(p.ID), Type: text(p.Type),
		CorrelationId: text(p.CorrelationID), Expiration: text(p.Expiration), Priority: p.Priority, Timestamp: p.Timestamp,
	}
	if m.Pub.Timestamp.Unix() < 0 { // AMQP counts from 1970, without a sign
		m.Pub.Timestamp = time.Time{}
	}
	if p.Transient {
		m.Pub.DeliveryMode = amqp.Transient
	}
	if rec.Value == nil {
		m.Pub.Body = p.NullBody
	}
	m.TableSize = 0
	for i := range rec.Headers {
		if fault := m.header(&rec.Headers[i]); fault != nil {
			return fault
		}
	}
	return nil
}
