// How an event becomes a message.

package message

import (
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Destination fills in exchange and routing key; false when one of them has no value.
func (m *Message) Destination(ev *event.Event) (field string, ok bool) {
	m.Copy = ev.Copy
	if ev.Route != nil {
		return m.routed(ev.Route)
	}
	if m.Layout.Profiled(ev) {
		return m.placed(ev)
	}
	m.buf = m.buf[:0]
	if m.Exchange, ok = m.resolve(&m.Layout.exchange, ev); !ok {
		return "exchange", false
	}
	if m.RoutingKey, ok = m.resolve(&m.Layout.routingKey, ev); !ok {
		return "routing key", false
	}
	return "", true
}

// Build makes the message, or returns why the event can never become one.
func (m *Message) Build(ev *event.Event) *sink.Fault {
	if ev.Fault != nil {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: ev.Fault.Error()}
	}
	if m.Layout.Profiled(ev) {
		if fault := m.render(ev); fault != nil {
			return fault
		}
		return m.check()
	}
	if field, ok := m.Destination(ev); !ok {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Text: field + " has a NULL in its template"}
	}
	p := &m.Pub
	p.ContentType = ev.PayloadKind.ContentType()
	p.DeliveryMode = amqp.Persistent
	p.MessageId, p.Type, p.Timestamp, p.Body = text(ev.ID), text(ev.Type), ev.Time, ev.Payload
	p.Priority, p.CorrelationId, p.Expiration = 0, "", ""
	clear(p.Headers)
	m.TableSize = 0

	if fault := m.properties(ev); fault != nil {
		return fault
	}
	if len(ev.Headers) > 0 {
		if fault := m.HeadersColumn(ev.Headers); fault != nil {
			return fault
		}
	}
	for _, h := range m.Layout.headers {
		if v := ev.Columns[h.column]; v != nil {
			m.setText(h.name, v)
		}
	}
	m.ownHeaders(ev)
	return m.check()
}

// properties fills in the properties that are columns.
func (m *Message) properties(ev *event.Event) *sink.Fault {
	if i := m.Layout.correlationID; i >= 0 {
		m.Pub.CorrelationId = text(ev.Columns[i])
	}
	if i := m.Layout.priority; i >= 0 && ev.Columns[i] != nil {
		n, err := strconv.ParseUint(text(ev.Columns[i]), 10, 8)
		if err != nil {
			return Invalid("priority is not a number from 0 to 255")
		}
		m.Pub.Priority = uint8(n)
	}
	if i := m.Layout.expiration; i >= 0 && ev.Columns[i] != nil {
		// RabbitMQ takes milliseconds up to 2^32-1 and closes the channel over anything else.
		if _, err := strconv.ParseUint(text(ev.Columns[i]), 10, 32); err != nil {
			return Invalid("expiration is not a number of milliseconds from 0 to 4294967295")
		}
		m.Pub.Expiration = text(ev.Columns[i])
	}
	return nil
}

// ownHeaders writes the headers of the relay's own, last: they win.
func (m *Message) ownHeaders(ev *event.Event) {
	if ev.Aggregate != nil {
		m.setText(headerAggregate, ev.Aggregate)
	}
	if ev.Key != nil {
		m.setText(HeaderKey, ev.Key)
	}
	m.set(headerTime, ev.Time.UnixMilli(), 8)
	start := len(m.buf)
	m.buf = ev.Position.Append(m.buf)
	m.setText(HeaderPosition, m.buf[start:])
	traceparent := ev.Traceparent
	if m.Layout.trace != nil {
		traceparent = m.Layout.trace(ev, m.trace[:0])
	}
	if traceparent != nil {
		m.setText(headerTraceparent, traceparent)
	}
	if ev.Replay {
		m.set(HeaderReplay, "true", 4+len("true"))
	}
}
