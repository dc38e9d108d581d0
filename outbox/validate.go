// What of an event the relay or the broker would refuse later, except for its JSON.

package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// ErrInvalid is the error of an event that can never be delivered: the database would not take it,
// or the relay would make a dead letter of it. Nothing was sent to the database, and the
// transaction can go on. Trying again does not help.
var ErrInvalid = errors.New("outbox: invalid event")

const (
	// maxShort is what AMQP carries in a routing key, a message's id and type, and the name of a
	// header, in bytes.
	maxShort = 255
	// maxHeaders bounds all parts of an event but its payload, in bytes: RabbitMQ takes them in one
	// frame of 128 KiB, and 1 KiB is left for what the relay adds.
	maxHeaders = 127 << 10
	// headerExtra is what a header takes next to its name and value.
	headerExtra = 6
	// maxPayload is max_message_size of RabbitMQ 4, in bytes.
	maxPayload = 16 << 20
)

// reserved are the headers that the relay writes itself on one of its brokers, that this package
// takes from the trace context, or that consumers count their attempts by. The relay drops them
// from the headers column.
var reserved = []string{
	"cdc_position", "cdc_replay", "traceparent", "tracestate", "x-retry-count",
	"aggregate_type", "aggregate_id", "timestamp_in_ms",
	"id", "eventType", "aggregateType",
}

// consumers are the headers that the packages inbox/rabbit and inbox/kafka write to a message that
// has failed. No handler sees them, and a retry replaces them: what an event had there would be
// lost.
var consumers = []string{
	"x-retry-at", "attempts", "first_failed_at", "failed_at", "failure_reason", "failure_class",
	"original_destination", "consumer_service",
}

// steering are the headers that RabbitMQ or a plugin of it acts on. The relay drops them from the
// headers column unless sink.rabbitmq.allow_headers lists them.
var steering = []string{
	"CC", "BCC", "x-delay", "x-deduplication-header", "x-cache-ttl", "x-recent-history-no-store", "x-received-from", "x-death",
	"x-mqtt-publish-qos", "x-mqtt-dup", "x-stream-filter-value",
}

// checkParts checks all but the payload and what an event has in total.
func (w *Writer) checkParts(ev *Event, uuids bool) error {
	c := &w.cfg.Columns
	for _, part := range []struct {
		name, value, column string
		required            bool
	}{
		{"id", ev.ID, c.ID, false},
		{"aggregate", ev.Aggregate, c.Aggregate, true},
		{"key", ev.Key, c.Key, false},
		{"type", ev.Type, c.Type, true},
	} {
		switch problem := textProblem(part.value); {
		case part.value != "" && part.column == NoColumn:
			return fmt.Errorf("%s is set, and the outbox has no column for it", part.name)
		case part.value == "" && part.required && part.column != NoColumn:
			return fmt.Errorf("%s is empty", part.name)
		case problem != "":
			return fmt.Errorf("%s %s", part.name, problem)
		}
	}
	if n := len(ev.ID); n > maxShort {
		return fmt.Errorf("id has %d bytes, the limit is %d", n, maxShort)
	}
	if uuids && ev.ID != "" && (uuid.Validate(ev.ID) != nil || len(ev.ID) != len(uuid.UUID{}.String())) {
		return errors.New("id is no UUID, and the column is of type uuid")
	}
	n := len(ev.Aggregate) + len(ev.Type)
	if ev.Aggregate != "" && ev.Type != "" {
		n++ // the dot
	}
	if n > maxShort {
		return fmt.Errorf("the routing key (aggregate.type) has %d bytes, the limit is %d", n, maxShort)
	}
	return w.checkHeaders(ev.Headers)
}

// checkHeaders checks names and values, in the order of the names: the same event has the same
// error every time.
func (w *Writer) checkHeaders(headers map[string]string) error {
	if len(headers) > 0 && w.cfg.Columns.Headers == NoColumn {
		return errors.New("headers are set, and the outbox has no column for them")
	}
	for _, name := range sortedNames(headers) {
		value := headers[name]
		steers := slices.Contains(steering, name)
		switch {
		case name == "":
			return errors.New("a header has no name")
		case len(name) > maxShort:
			return fmt.Errorf("the name of a header has %d bytes, the limit is %d", len(name), maxShort)
		case textProblem(name) != "":
			return fmt.Errorf("the name of a header %s", textProblem(name))
		case slices.Contains(reserved, name):
			return fmt.Errorf("header %q is reserved: the relay would drop it", name)
		case slices.Contains(consumers, name):
			return fmt.Errorf("header %q is reserved: consumers write it when an event fails", name)
		case steers && !slices.Contains(w.cfg.AllowHeaders, name):
			return fmt.Errorf("header %q steers RabbitMQ, and the relay would drop it: list it in sink.rabbitmq.allow_headers of the relay and in Config.AllowHeaders", name)
		case textProblem(value) != "":
			return fmt.Errorf("header %q %s", name, textProblem(value))
		case (name == "CC" || name == "BCC") && len(value) > maxShort:
			return fmt.Errorf("header %q, a routing key, has %d bytes, the limit is %d", name, len(value), maxShort)
		}
	}
	return nil
}

func sortedNames(headers map[string]string) []string {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkSize checks what RabbitMQ takes in one frame.
func checkSize(r *row, headers map[string]string) error {
	size := len(r.id) + len(r.aggregate) + len(r.key) + len(r.typ) + len(r.traceparent)
	for name, value := range headers {
		size += len(name) + len(value) + headerExtra
	}
	if size > maxHeaders {
		return fmt.Errorf("id, aggregate, key, type and headers have %d bytes, the limit is %d", size, maxHeaders)
	}
	return nil
}

// textProblem says why PostgreSQL would not store a text; "" for nothing.
func textProblem(text string) string {
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return "has a NUL byte, which PostgreSQL does not store"
	case !utf8.ValidString(text):
		return "is not UTF-8"
	}
	return ""
}
