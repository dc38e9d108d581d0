// How a delivery becomes a message for the inbox, and how it is published again after a failure:
// with the same body and properties, and headers that say what happened.

package rabbit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// The relay's headers that become fields of inbox.Message.
const (
	headerAggregate = "aggregate_type"
	headerKey       = "aggregate_id"
	headerCommitted = "timestamp_in_ms"
	headerID        = "id" // in messages of a Debezium profile
)

// The headers that this package writes. If an event has headers of these names, a handler does not
// see them.
const (
	headerRetries     = "x-retry-count" // how many attempts have failed
	headerReason      = "failure_reason"
	headerClass       = "failure_class"
	headerAttempts    = "attempts"
	headerFirstFailed = "first_failed_at"
	headerFailed      = "failed_at"
	headerQueue       = "original_destination"
	headerService     = "consumer_service"
)

var ownHeaders = []string{headerRetries, headerReason, headerClass, headerAttempts, headerFirstFailed, headerFailed, headerQueue, headerService}

// isOwnHeader reports whether this package writes a header, or the broker when it hands a message
// on. A handler does not see such headers.
func isOwnHeader(name string) bool { return slices.Contains(ownHeaders, name) || isBrokerHeader(name) }

// isBrokerHeader reports whether the broker writes a header. Such headers must not be published
// again, because they would be wrong then: RabbitMQ before 4.0 drops a message that expires on its
// way to a queue which its x-death names already.
func isBrokerHeader(name string) bool {
	return name == "x-death" || name == "x-delivery-count" || name == "x-acquired-count" ||
		strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// republished makes a message with the same content. It leaves out headers that do not belong to
// the event; CC and BCC, which would send copies to others; the expiration, which would end the
// message while it waits; and the user, whom the broker compares with the connection's.
func republished(d *amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+len(ownHeaders))
	for name, value := range d.Headers {
		if !isOwnHeader(name) && name != "CC" && name != "BCC" {
			headers[name] = value
		}
	}
	return amqp.Publishing{
		Headers: headers, Body: d.Body, DeliveryMode: amqp.Persistent,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
	}
}

// retryOf makes the message for its next attempt.
func retryOf(d *amqp.Delivery, f inbox.Failure) amqp.Publishing {
	p := republished(d)
	p.Headers[headerRetries] = int64(f.Attempts)
	p.Headers[headerReason] = f.Reason
	p.Headers[headerFirstFailed] = timestampText(f.FirstFailed)
	return p
}

// deadLetterOf makes the message of a dead letter.
func deadLetterOf(d *amqp.Delivery, f inbox.Failure, service string) amqp.Publishing {
	p := republished(d)
	p.Headers[headerReason] = f.Reason
	p.Headers[headerClass] = string(f.Class)
	p.Headers[headerAttempts] = int64(f.Attempts)
	p.Headers[headerFirstFailed] = timestampText(f.FirstFailed)
	p.Headers[headerFailed] = timestampText(f.LastFailed)
	p.Headers[headerQueue] = service
	p.Headers[headerService] = service
	return p
}

func timestampText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// newMessage makes the message of a delivery. Any part may be missing, because a program other than
// the relay may have published it.
func newMessage(d *amqp.Delivery, queue string) inbox.Message {
	m := inbox.Message{
		ID: eventID(d), Type: d.Type, Payload: d.Body, ContentType: d.ContentType, Committed: d.Timestamp,
		Headers: make(map[string]string, len(d.Headers)), Attempt: 1, Source: queue,
	}
	for name, value := range d.Headers {
		if isOwnHeader(name) {
			continue
		}
		if text, ok := headerText(value); ok {
			m.Headers[name] = text
		}
	}
	m.Aggregate, m.Key = m.Headers[headerAggregate], m.Headers[headerKey]
	if ms, err := strconv.ParseInt(m.Headers[headerCommitted], 10, 64); err == nil {
		m.Committed = time.UnixMilli(ms)
	}
	for _, name := range []string{headerAggregate, headerKey, headerCommitted} {
		delete(m.Headers, name)
	}
	if text, ok := headerText(d.Headers[headerRetries]); ok {
		if n, err := strconv.ParseInt(text, 10, 31); err == nil && n > 0 {
			m.Attempt = int(n) + 1
		}
	}
	if text, ok := headerText(d.Headers[headerFirstFailed]); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			m.FirstFailed = at
		}
	}
	return m
}

// eventID returns the id of the event: message_id. The relay's messages with a Debezium profile
// have the id in the header id instead, perhaps as JSON with a schema. The bare value is the id
// then, so that it stays the same under another format.
func eventID(d *amqp.Delivery) string {
	if d.MessageId != "" {
		return d.MessageId
	}
	id, _ := headerText(d.Headers[headerID])
	var withSchema struct{ Payload json.RawMessage }
	if json.Unmarshal([]byte(id), &withSchema) == nil && withSchema.Payload != nil {
		id = string(withSchema.Payload)
	}
	var text string
	if json.Unmarshal([]byte(id), &text) == nil {
		return text
	}
	return id
}

// orderingKey returns the key by which messages keep their order: aggregate and key, as in the
// relay. "" means that the message has no order. A message without message_id is from a Debezium
// profile, which may leave the key out. Without a header that has the key, all of these share one
// ordering key.
func orderingKey(d *amqp.Delivery, m *inbox.Message) string {
	if m.Key == "" && d.MessageId != "" {
		return ""
	}
	return m.Aggregate + "\x00" + m.Key
}

// headerText returns the value of a header as text, and false for a table, an array or no value.
func headerText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return strings.ToValidUTF8(v, "\uFFFD"), true
	case []byte:
		return strings.ToValidUTF8(string(v), "\uFFFD"), true
	case time.Time:
		return v.UTC().Format(time.RFC3339), true
	case bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// propertiesSize is an upper bound for all properties of a message except its headers: each is a
// short text or a number.
const propertiesSize = 10 * (maxShortString + 1)

func tableSize(t amqp.Table) int {
	size := 4
	for name, value := range t {
		size += 1 + len(name) + valueSize(value)
	}
	return size
}

func valueSize(value any) int {
	const kind = 1
	switch v := value.(type) {
	case string:
		return kind + 4 + len(v)
	case []byte:
		return kind + 4 + len(v)
	case amqp.Table:
		return kind + tableSize(v)
	case []any:
		size := kind + 4
		for _, element := range v {
			size += valueSize(element)
		}
		return size
	}
	return kind + 8
}
