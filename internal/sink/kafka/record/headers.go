// The headers column: a JSON object whose members become record headers.

package record

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// HeaderColumn is one record header whose value is a column's text.
type HeaderColumn struct{ Name, Column string }

// The record headers that are the relay's own, and the ones it never writes for anybody.
const (
	HeaderID          = "id"
	HeaderType        = "eventType"
	headerAggregate   = "aggregateType"
	headerPosition    = "cdc_position"
	headerTraceparent = "traceparent"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
)

var reserved = []string{HeaderID, HeaderType, headerAggregate, headerPosition, headerTraceparent, HeaderReplay, "x-retry-count"}

// Reserved reports whether name is a header of the relay's own: not to be configured, dropped from
// the headers column.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// headersColumn writes the headers of a JSON object. Kafka's are bytes: a string is its text, null
// is a null value, and a number, true, false, an array or an object is its JSON text unchanged.
// Keys that are the relay's own are dropped and counted; a configured header that has a value goes
// before a key of its name. A key that is there twice (type json keeps it) is written twice, and a
// consumer that asks for the last one has what JSON means. A JSON null is no headers.
func (e *Encoder) headersColumn(ev *event.Event) *sink.Fault {
	members, ok := event.MembersOf(ev.Headers)
	if !ok {
		return invalid("the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		if !e.taken(text(name), ev) {
			e.AddHeader(text(name), headerValue(raw))
		}
	}
	return nil
}

// taken reports whether the record has a header of the relay's own or a configured one of this
// name.
func (e *Encoder) taken(name string, ev *event.Event) bool {
	for _, own := range reserved {
		if own == name {
			if e.layout.dropped != nil {
				e.layout.dropped(own) // not name, which aliases the event
			}
			return true
		}
	}
	for i := range e.layout.headers {
		if h := &e.layout.headers[i]; h.name == name && ev.Columns[h.column] != nil {
			return true
		}
	}
	return false
}

// headerValue is a JSON value as a header carries it.
func headerValue(raw []byte) []byte {
	switch raw[0] {
	case 'n':
		return nil
	case '"':
		return event.Unquote(raw)
	}
	return raw
}
