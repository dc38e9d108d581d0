// Headers by which a message steers the broker.

package message

import (
	"encoding/json"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// SteeringHeaders are the names that RabbitMQ or a plugin of it acts on, exactly as it reads them:
// another case has no effect. From the headers column of a row they are dropped and counted unless
// sink.rabbitmq.allow_headers lists them: with CC a row reaches every queue by the default
// exchange, past the patterns of sink.rabbitmq.allow. A header that the configuration maps is
// written: that is the operator's word. The arguments of bindings (headers exchanges, a
// hash-header) choose other headers. Who makes such a binding wants the row to decide.
var SteeringHeaders = []string{
	// further routing keys of the exchange: rabbit.hrl, ROUTING_HEADERS; BCC is removed on the way
	headerCC, headerBCC,
	// rabbitmq_delayed_message_exchange keeps the message back for so many milliseconds
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

// dropped are the names that a row may not use: the relay's own, and those that steer the broker
// and are not allowed.
func dropped(allowed []string) []string {
	names := slices.Clone(OwnHeaders)
	for _, name := range SteeringHeaders {
		if !slices.Contains(allowed, name) {
			names = append(names, name)
		}
	}
	return names
}

// copies is the value of CC or BCC. RabbitMQ takes an array of routing keys and closes the channel
// over anything else, so a text is an array of one. Nothing is made of null. RabbitMQ publishes
// with each of these keys as with the message's own, so the patterns hold for them too; what they
// exclude is the event's own fault, because its destination is in order.
func (m *Message) copies(h *sink.Header) (keys []any, size int, fault *sink.Fault) {
	var names []string
	switch {
	case h.Value == nil:
		return nil, 0, nil
	case h.Kind != sink.JSON:
		names = []string{text(h.Value)}
	case json.Unmarshal(h.Value, &names) != nil:
		return nil, 0, notKeys
	}
	size = 4
	for _, key := range names {
		switch {
		case len(key) > MaxShortString:
			return nil, 0, notKeys
		case m.Layout.allow != nil && !sink.Allows(m.Layout.allow.RoutingKey, key):
			return nil, 0, notAllowedKey
		}
		if size += 1 + 4 + len(key); size <= int(m.Limits.Header.Load()) { // see Message.set
			keys = append(keys, key)
		}
	}
	return keys, size, nil
}

// They are shared by all events concerned.
var (
	notKeys       = sink.PermanentFault(sink.Invalid, "header CC or BCC is not a list of routing keys, of 255 bytes at most")
	notAllowedKey = sink.PermanentFault(sink.NotAllowed, "header CC or BCC has a routing key that is not allowed by sink.rabbitmq.allow.routing_key")
)
