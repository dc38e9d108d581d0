// Package message makes an AMQP message of an event: exchange, routing key, properties, headers and
// body, by the relay's own form or by Debezium's.
package message

import (
	"unsafe"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Message is one lane's scratch space: Build fills it from an event, and it is valid until the next
// Build. Its strings alias the event's bytes, buf and trace. This is safe because amqp091 has
// serialised them when its publish call returns.
type Message struct {
	Layout     *Layout
	Limits     *Limits
	Exchange   string
	RoutingKey string
	Pub        amqp.Publishing
	Copy       bool // of a dead letter
	TableSize  int  // encoded size of pub.Headers, at most
	buf        []byte
	trace      [64]byte
	record     debezium.Record // of a profile
}

// Forget drops the references to the last event's bytes, which belong to the caller again.
func (m *Message) Forget() {
	clear(m.Pub.Headers)
	m.Pub = amqp.Publishing{Headers: m.Pub.Headers}
	m.Exchange, m.RoutingKey = "", ""
	m.record.Forget()
}

// routed sets a destination that was decided before.
func (m *Message) routed(r *event.Route) (field string, ok bool) {
	m.Exchange, m.RoutingKey = text(r.Name), text(r.RoutingKey)
	switch {
	case r.Name == nil:
		return "exchange", false
	case r.RoutingKey == nil:
		return "routing key", false
	}
	return "", true
}

func (m *Message) resolve(t *template, ev *event.Event) (string, bool) {
	if t.constant {
		return t.value, true
	}
	start := len(m.buf)
	var ok bool
	m.buf, ok = t.Append(m.buf, ev)
	return text(m.buf[start:]), ok
}

// set writes one header whose encoded value, without its type octet, has size bytes.
func (m *Message) set(name string, value any, size int) {
	m.Pub.Headers[name] = value
	m.TableSize += 1 + len(name) + 1 + size
}

func (m *Message) setText(name string, value []byte) {
	m.set(name, text(value), 4+len(value))
}

// text is b as a string without a copy.
func text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// New makes a lane's scratch message.
func New(l *Layout, limits *Limits) Message {
	return Message{Layout: l, Limits: limits, Pub: amqp.Publishing{Headers: amqp.Table{}}}
}
