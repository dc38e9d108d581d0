// A delivery as the handler sees it.

package rabbit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// newMessage reads what the relay has written. Anything may be missing: another program may have
// published.
func newMessage(d *amqp.Delivery, queue string) inbox.Message {
	m := inbox.Message{
		ID: idOf(d), Type: d.Type, Payload: d.Body, Committed: d.Timestamp,
		Headers: make(map[string]string, len(d.Headers)), Attempt: 1, Source: queue,
	}
	for name, value := range d.Headers {
		if isOwn(name) {
			continue
		}
		if text, ok := textOf(value); ok {
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
	if text, ok := textOf(d.Headers[headerRetries]); ok {
		if n, err := strconv.ParseInt(text, 10, 31); err == nil && n > 0 {
			m.Attempt = int(n) + 1
		}
	}
	if text, ok := textOf(d.Headers[headerFirstFailed]); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			m.FirstFailed = at
		}
	}
	return m
}

// idOf is the id of the event: message_id. A Debezium profile of the relay makes messages without
// it. Theirs is in the header id, perhaps as JSON, and with a schema: the value alone is the id, so
// that it is the same after another choice of format.
func idOf(d *amqp.Delivery) string {
	if d.MessageId != "" {
		return d.MessageId
	}
	id, _ := textOf(d.Headers[headerID])
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

// orderedBy is what messages have in common that must stay in their order: aggregate and key, as
// for the relay. "" if there is no key. Without message_id nobody knows whether the event has one:
// as long as no header says it, all of these stay in their order.
func orderedBy(d *amqp.Delivery, m *inbox.Message) string {
	if m.Key == "" && d.MessageId != "" {
		return ""
	}
	return m.Aggregate + "\x00" + m.Key
}

// textOf is the value of a header as text; false for a table, an array or nothing.
func textOf(value any) (string, bool) {
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
