// Headers as AMQP has them: each name once, with a typed value. Some names steer the broker, and a
// row may not use them unless the configuration allows it.

package rabbit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// addHeader adds a header to the message, and its encoded size to tableSize. A later header of the
// same name replaces an earlier one.
func (m *message) addHeader(h *sink.Header) *sink.Fault {
	if len(h.Name) > maxShortString {
		return sink.PermanentFault(sink.Invalid, fmt.Sprintf("a header's name has %d bytes, the protocol carries %d", len(h.Name), maxShortString))
	}
	if h.Name == headerCC || h.Name == headerBCC {
		keys, size, fault := m.copyKeys(h)
		if fault == nil && keys != nil {
			m.setHeader(h.Name, keys, size)
		}
		return fault
	}
	var value any
	size := 4 + len(h.Value)
	switch h.Kind {
	case sink.Bytes:
		value = h.Value
	case sink.Text:
		value = aliasText(h.Value)
	case sink.JSON:
		value, size = jsonValue(h.Value)
	}
	m.setHeader(h.Name, value, size)
	return nil
}

// setHeader puts a value with its encoded size into the table. A header over the limit of a frame
// is only counted, for the fault that names the size.
func (m *message) setHeader(name string, value any, size int) {
	m.tableSize += 1 + len(name) + 1 + size // the length and the name, the type, the value
	if m.tableSize <= int(m.limits.header.Load()) {
		m.pub.Headers[name] = value
	}
}

// jsonValue returns a JSON value as amqp091 encodes it, and its encoded size without the type
// octet. true, false and null are the same in AMQP. An integer that fits becomes a 64-bit integer,
// and a decimal a double. A number that would be rounded, or an integer beyond 64 bits, becomes its
// text, and so do arrays and objects. raw nil is null.
func jsonValue(raw []byte) (value any, size int) {
	if raw == nil {
		return nil, 0
	}
	switch raw[0] {
	case 't', 'f':
		return raw[0] == 't', 1
	case '{', '[':
		return aliasText(raw), 4 + len(raw)
	}
	if len(raw) <= len("-9223372036854775808") {
		if n, err := strconv.ParseInt(aliasText(raw), 10, 64); err == nil {
			return n, 8
		}
	}
	if bytes.ContainsAny(raw, ".eE") {
		if f, err := strconv.ParseFloat(aliasText(raw), 64); err == nil && printsAs(f, raw) {
			return f, 8
		}
	}
	return aliasText(raw), 4 + len(raw)
}

// printsAs reports whether the shortest decimal that reads as f is the number in raw, so that
// whoever prints f prints that number.
func printsAs(f float64, raw []byte) bool {
	var buf [32]byte
	of, ok := decimalOf(raw)
	shortest, _ := decimalOf(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return ok && of == shortest
}

// decimal is the number 0.DIGITS times 10 to the power of exponent. No double needs more digits.
type decimal struct {
	digits   [17]byte // the first is not 0; after the last there are zero bytes
	exponent int
}

// decimalOf reads a JSON number without its sign. It returns false when the number has more digits
// than a double.
func decimalOf(number []byte) (d decimal, ok bool) {
	digits, zeros := 0, 0 // zeros since the last digit that is not 0
	fraction := false
	for i, c := range number {
		switch {
		case c == '.':
			fraction = true
		case c == 'e' || c == 'E':
			power, err := strconv.Atoi(aliasText(number[i+1:]))
			if d.exponent += power; err != nil {
				return d, false
			}
			return d.normalized(), true
		case c == '-':
		case c == '0' && digits == 0:
			if fraction {
				d.exponent--
			}
		default:
			if !fraction {
				d.exponent++
			}
			if c == '0' {
				zeros++
				continue
			}
			for ; zeros > 0 && digits < len(d.digits); zeros-- {
				d.digits[digits] = '0'
				digits++
			}
			if digits == len(d.digits) {
				return d, false
			}
			d.digits[digits] = c
			digits++
		}
	}
	return d.normalized(), true
}

// normalized returns one form for every zero.
func (d decimal) normalized() decimal {
	if d.digits[0] == 0 {
		return decimal{}
	}
	return d
}

// SteeringHeaders are the names that RabbitMQ or a plugin of it acts on, exactly as it reads them:
// another case has no effect. From the headers column of a row they are dropped and counted unless
// sink.rabbitmq.allow_headers lists them: with CC a row reaches every queue by the default
// exchange, past the patterns of sink.rabbitmq.allow. A header that the configuration maps is
// written: that is the operator's word. The arguments of bindings (headers exchanges, a
// hash-header) choose other headers. Who makes such a binding wants the row to decide.
var SteeringHeaders = []string{
	// further routing keys of the exchange: rabbit.hrl, ROUTING_HEADERS; BCC is removed on the way
	headerCC, headerBCC,
	// rabbitmq_delayed_message_exchange keeps the message back for these milliseconds
	"x-delay",
	// rabbitmq-message-deduplication drops a message whose value it has seen, and keeps the value
	// for as long as the second one says
	"x-deduplication-header", "x-cache-ttl",
	// rabbit_exchange_type_recent_history leaves the message out of the history
	"x-recent-history-no-store",
	// rabbit_federation_util, should_forward: a message that was at the other cluster stays here
	"x-received-from",
	// rabbit_dead_letter drops a message that has been through a queue before; consumers count
	// their attempts by it
	"x-death",
	// rabbitmq_mqtt, delivery_qos: with 0 a subscriber gets the message once at most, and loses it
	// with its connection; x-mqtt-dup tells it that the message is a repeat
	"x-mqtt-publish-qos", "x-mqtt-dup",
	// rabbit_stream_queue: consumers of a stream that filter do not see a message of another value
	"x-stream-filter-value",
}

const (
	headerCC  = "CC"
	headerBCC = "BCC"
)

// droppedHeaders returns the names that a row may not use: the relay's own headers, and those that
// steer the broker and are not allowed.
func droppedHeaders(allowed []string) []string {
	names := slices.Clone(OwnHeaders)
	for _, name := range SteeringHeaders {
		if !slices.Contains(allowed, name) {
			names = append(names, name)
		}
	}
	return names
}

// copyKeys makes the value of CC or BCC. RabbitMQ takes an array of routing keys and closes the
// channel over anything else, so a text becomes an array of one key, and null becomes no header.
// RabbitMQ publishes with each of these keys as with the message's own, so the patterns hold for
// them, too. A key that they exclude is the event's own fault, because its destination is right.
func (m *message) copyKeys(h *sink.Header) (keys []any, size int, fault *sink.Fault) {
	var names []string
	switch {
	case h.Value == nil:
		return nil, 0, nil
	case h.Kind != sink.JSON:
		names = []string{aliasText(h.Value)}
	case json.Unmarshal(h.Value, &names) != nil:
		return nil, 0, notRoutingKeys
	}
	size = 4
	for _, key := range names {
		switch {
		case len(key) > maxShortString:
			return nil, 0, notRoutingKeys
		case m.layout.allow != nil && !sink.Allows(m.layout.allow.RoutingKey, key):
			return nil, 0, notAllowedKey
		}
		if size += 1 + 4 + len(key); size <= int(m.limits.header.Load()) { // see message.setHeader
			keys = append(keys, key)
		}
	}
	return keys, size, nil
}

// All events with such a fault share it.
var (
	notRoutingKeys = sink.PermanentFault(sink.Invalid, "header CC or BCC is not a list of routing keys, of 255 bytes at most")
	notAllowedKey  = sink.PermanentFault(sink.NotAllowed, "header CC or BCC has a routing key that is not allowed by sink.rabbitmq.allow.routing_key")
)
