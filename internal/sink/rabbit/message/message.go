// Package message makes an AMQP message of an event: exchange, routing key, properties, headers and
// body, of the record that an encoder makes. Plain is the encoder of the relay's own format.
package message

import (
	"unsafe"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Message is one lane's scratch space: Build fills it from an event, and it is valid until the next
// Build. Its strings alias the event's bytes and the record. This is safe because amqp091 has
// serialised them when its publish call returns.
type Message struct {
	Layout     *Layout
	Limits     *Limits
	Exchange   string
	RoutingKey string
	Pub        amqp.Publishing
	Copy       bool // of a dead letter
	TableSize  int  // encoded size of pub.Headers, at most
	record     sink.Record
}

// Forget drops the references to the last event's bytes, which belong to the caller again.
func (m *Message) Forget() {
	m.Pub = amqp.Publishing{Headers: emptied(m.Pub.Headers)}
	m.Exchange, m.RoutingKey = "", ""
	m.record.Forget()
}

// keptHeaders is how many headers a table has had that is used again: one that has grown stays as
// large, and is emptied as slowly.
const keptHeaders = 256

// emptied is the table for the next message.
func emptied(t amqp.Table) amqp.Table {
	if len(t) > keptHeaders {
		return amqp.Table{}
	}
	clear(t)
	return t
}

// text is b as a string without a copy.
func text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// New makes a lane's scratch message.
func New(l *Layout, limits *Limits) Message {
	return Message{Layout: l, Limits: limits, Pub: amqp.Publishing{Headers: amqp.Table{}}}
}
