// What can never be delivered is refused.

package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrInvalid is the error of an event that can never be delivered: the database would not take it,
// or the relay would make a dead letter of it. Nothing was sent to the database, and the
// transaction can go on. Trying again does not help.
var ErrInvalid = errors.New("outbox: invalid event")

const (
	// maxShortString is what AMQP carries in a routing key, a message's id and type, and the name
	// of a header, in bytes.
	maxShortString = 255
	// maxHeaders bounds all parts of an event but its payload, in bytes: RabbitMQ takes them in one
	// frame of 128 KiB, and 1 KiB is left for what the relay adds.
	maxHeaders = 127 << 10
	// headerExtra is what a header takes next to its name and value.
	headerExtra = 6
	// maxPayload is max_message_size of RabbitMQ 4, in bytes.
	maxPayload = 16 << 20
)

// reservedHeaders are the headers that the relay writes itself on one of its brokers, that this
// package takes from the trace context, or that consumers count their attempts by. The relay drops
// them from the headers column.
var reservedHeaders = []string{
	"cdc_position", "cdc_replay", "traceparent", "tracestate", "x-retry-count",
	"aggregate_type", "aggregate_id", "timestamp_in_ms",
	"id", "eventType", "aggregateType",
}

// consumerHeaders are the headers that the packages inbox/rabbit and inbox/kafka write to a message
// that has failed. No handler sees them, and a retry replaces them: what an event had there would
// be lost.
var consumerHeaders = []string{
	"x-retry-at", "attempts", "first_failed_at", "failed_at", "failure_reason", "failure_class",
	"original_destination", "consumer_service",
}

// steeringHeaders are the headers that RabbitMQ or a plugin of it acts on. The relay drops them
// from the headers column unless sink.rabbitmq.allow_headers lists them.
var steeringHeaders = []string{
	"CC", "BCC", "x-delay", "x-deduplication-header", "x-cache-ttl", "x-recent-history-no-store", "x-received-from", "x-death",
	"x-mqtt-publish-qos", "x-mqtt-dup", "x-stream-filter-value",
}

var uuidText = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

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
	if n := len(ev.ID); n > maxShortString {
		return fmt.Errorf("id has %d bytes, the limit is %d", n, maxShortString)
	}
	if uuids && ev.ID != "" && !uuidText.MatchString(ev.ID) {
		return errors.New("id is no UUID, and the column is of type uuid")
	}
	n := len(ev.Aggregate) + len(ev.Type)
	if ev.Aggregate != "" && ev.Type != "" {
		n++ // the dot
	}
	if n > maxShortString {
		return fmt.Errorf("the routing key (aggregate.type) has %d bytes, the limit is %d", n, maxShortString)
	}
	return w.checkHeaders(ev.Headers)
}

// checkHeaders checks names and values, in the order of the names: the same event has the same
// error every time.
func (w *Writer) checkHeaders(headers map[string]string) error {
	if len(headers) > 0 && w.cfg.Columns.Headers == NoColumn {
		return errors.New("headers are set, and the outbox has no column for them")
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		steers := slices.Contains(steeringHeaders, name)
		switch {
		case name == "":
			return errors.New("a header has no name")
		case len(name) > maxShortString:
			return fmt.Errorf("the name of a header has %d bytes, the limit is %d", len(name), maxShortString)
		case textProblem(name) != "":
			return fmt.Errorf("the name of a header %s", textProblem(name))
		case slices.Contains(reservedHeaders, name):
			return fmt.Errorf("header %q is reserved: the relay would drop it", name)
		case slices.Contains(consumerHeaders, name):
			return fmt.Errorf("header %q is reserved: consumers write it when an event fails", name)
		case steers && !slices.Contains(w.cfg.AllowHeaders, name):
			return fmt.Errorf("header %q steers RabbitMQ, and the relay would drop it: list it in sink.rabbitmq.allow_headers of the relay and in Config.AllowHeaders", name)
		case textProblem(value) != "":
			return fmt.Errorf("header %q %s", name, textProblem(value))
		case (name == "CC" || name == "BCC") && len(value) > maxShortString:
			return fmt.Errorf("header %q, a routing key, has %d bytes, the limit is %d", name, len(value), maxShortString)
		}
	}
	return nil
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

// checkJSON returns why a text is not JSON, or has a character that PostgreSQL does not store, or
// how many bytes the relay reads of it at most. A column of type json or text keeps the text. A
// jsonb comes back with a space behind each comma and colon, and without other spaces. Its strings
// get no longer, because it escapes no more than JSON demands. A number with an exponent comes back
// from jsonb with all its digits, and may be longer than the size says: 1e100000 has 100,001. What
// else jsonb refuses, such as a number of 200,000 digits, is PostgreSQL's error.
func checkJSON(text string) (size int, err error) {
	switch {
	case text == "":
		return 0, errors.New("it is empty; for no body use outbox.Tombstone")
	case !utf8.ValidString(text):
		return 0, errors.New("it is not UTF-8")
	case !json.Valid([]byte(text)):
		return 0, errors.New("it is not JSON")
	}
	size = len(text)
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\': // in a string alone
			if strings.HasPrefix(text[i:], `\u0000`) {
				return 0, errors.New(`it has \u0000, which PostgreSQL does not store`)
			}
			i++
		case !quoted && (c == ',' || c == ':'):
			size++
		}
	}
	return size, nil
}
