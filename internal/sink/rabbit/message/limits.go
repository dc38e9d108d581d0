// The limits of a message, checked before it is sent.

package message

import (
	"fmt"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// MaxShortString is what AMQP 0-9-1 carries in a shortstr: exchange, routing key, message id, type,
// correlation id, content type and the names of headers. amqp091 answers a longer one by ending the
// whole connection.
const MaxShortString = 255

// Limits are what a message is measured against before it is sent, since passing one would cost the
// channel or the connection with everything else in flight on it.
type Limits struct {
	// bytes of the content header frame's payload: frame_max less the frame's own 8
	Header atomic.Int64
}

// maxBody is RabbitMQ's own upper bound for a body, in bytes; the configured max_message_size is
// learnt from its refusals.
const maxBody = 128 << 20

// Negotiated sets the frame_max of a connection.
func (l *Limits) Negotiated(frameMax int) { l.Header.Store(int64(frameMax - 8)) }

// check measures a built message. The error text names field, size and limit, never a value.
func (m *Message) check() *sink.Fault {
	p := &m.Pub
	if len(m.Exchange)|len(m.RoutingKey)|len(p.MessageId)|len(p.Type)|len(p.CorrelationId)|len(p.ContentType)|len(p.Expiration) > MaxShortString {
		// 255 is all ones: the lengths' OR is above it exactly when one of them is
		return m.checkShortStrings()
	}
	if size, limit := m.headerSize(), int(m.Limits.Header.Load()); size > limit {
		return &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: m.DestinationText(),
			Text: fmt.Sprintf("headers and properties have %d bytes, a frame carries %d", size, limit),
		}
	}
	if len(p.Body) > maxBody {
		return TooLarge(m.DestinationText(), len(p.Body), maxBody)
	}
	return nil
}

// checkShortStrings finds the first field that is too long.
func (m *Message) checkShortStrings() *sink.Fault {
	for _, f := range []struct{ name, value string }{
		{"exchange", m.Exchange},
		{"routing key", m.RoutingKey},
		{"message id", m.Pub.MessageId},
		{"type", m.Pub.Type},
		{"correlation id", m.Pub.CorrelationId},
		{"content type", m.Pub.ContentType},
		{"expiration", m.Pub.Expiration},
	} {
		if len(f.value) > MaxShortString {
			return sink.PermanentFault(sink.Invalid, fmt.Sprintf("%s has %d bytes, the protocol carries %d", f.name, len(f.value), MaxShortString))
		}
	}
	return nil
}

// headerSize is the payload of the content header frame: class, weight, body size and flags (14
// bytes), then the properties that are set. A header that was written twice counts twice, so it is
// exact or a little too high.
func (m *Message) headerSize() int {
	p := &m.Pub
	size := 14 + 4 + m.TableSize + 1 // header table, delivery mode
	for _, s := range [...]string{p.ContentType, p.MessageId, p.Type, p.CorrelationId, p.Expiration} {
		if s != "" {
			size += 1 + len(s)
		}
	}
	if p.Priority > 0 {
		size++
	}
	if !p.Timestamp.IsZero() {
		size += 8
	}
	return size
}

// DestinationText names where the message is going, as an operator would.
func (m *Message) DestinationText() string {
	return Pair(m.Layout.Shown(m.Copy, m.Exchange, m.RoutingKey))
}
