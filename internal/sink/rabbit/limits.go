package rabbit

import (
	"fmt"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// maxShortString is what AMQP 0-9-1 carries in a shortstr: exchange, routing key, message id, type, correlation id and
// the names of headers. amqp091 answers a longer one by ending the whole connection.
const maxShortString = 255

// limits are what a message is measured against before it is sent, since passing one would cost the channel or the
// connection with everything else in flight on it.
type limits struct {
	header atomic.Int64 // bytes of the content header frame's payload: frame_max less the frame's own 8
}

// maxBody is RabbitMQ's own ceiling in bytes; the configured max_message_size is learnt from its refusals.
const maxBody = 128 << 20

// negotiated takes over the frame_max of a connection.
func (l *limits) negotiated(frameMax int) { l.header.Store(int64(frameMax - 8)) }

// check measures a built message. The words name field, size and limit, never a value.
func (m *message) check() *sink.Fault {
	p := &m.pub
	if len(m.exchange)|len(m.routingKey)|len(p.MessageId)|len(p.Type)|len(p.CorrelationId) > maxShortString {
		return m.checkShortStrings() // 255 is all ones: the lengths' OR is above it exactly when one of them is
	}
	if size, limit := m.headerSize(), int(m.limits.header.Load()); size > limit {
		return &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: m.going(),
			Words: fmt.Sprintf("headers and properties have %d bytes, a frame carries %d", size, limit),
		}
	}
	if len(p.Body) > maxBody {
		return tooLarge(m.going(), len(p.Body), maxBody)
	}
	return nil
}

// checkShortStrings finds the first field that is too long.
func (m *message) checkShortStrings() *sink.Fault {
	for _, f := range []struct{ name, value string }{
		{"exchange", m.exchange},
		{"routing key", m.routingKey},
		{"message id", m.pub.MessageId},
		{"type", m.pub.Type},
		{"correlation id", m.pub.CorrelationId},
	} {
		if len(f.value) > maxShortString {
			return invalid(fmt.Sprintf("%s has %d bytes, the protocol carries %d", f.name, len(f.value), maxShortString))
		}
	}
	return nil
}

// headerSize is the payload of the content header frame: class, weight, body size and flags (14 bytes), then the
// properties that are set. A header that was written twice counts twice, so it is exact or a little too high.
func (m *message) headerSize() int {
	p := &m.pub
	size := 14 + 4 + m.tableSize + 1 // header table, delivery mode
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

// going is where the message is going, as an operator would name it.
func (m *message) going() string { return pair(m.layout.shown(m.copy, m.exchange, m.routingKey)) }

// exchange and pair name a destination in the words of sink.Fault.
func exchange(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return fmt.Sprintf("exchange %q", name)
}

func pair(name, routingKey string) string {
	if len(routingKey) > maxShortString {
		return exchange(name)
	}
	return fmt.Sprintf("%s, routing key %q", exchange(name), routingKey)
}

func invalid(words string) *sink.Fault {
	return &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Words: words}
}

func tooLarge(destination string, size, limit int) *sink.Fault {
	return &sink.Fault{
		Class: sink.Permanent, Reason: sink.TooLarge, Destination: destination,
		Words: fmt.Sprintf("the body has %d bytes, the limit is %d", size, limit),
	}
}

// newMessage makes a lane's scratch message.
func newMessage(s *Sink) message {
	return message{layout: &s.message, limits: &s.limits, pub: amqp.Publishing{Headers: amqp.Table{}}}
}
