// The message of a mirrored dead letter.

package dlq

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// A dead letter may be dead because of its id, type, key or headers: the mirror's message has only
// those that any broker accepts.
const (
	maxShort = 255  // bytes of a message id and a type: AMQP's short strings
	maxKey   = 1024 // bytes of an aggregate and a key
)

// facts are the headers of a mirrored dead letter, besides cdc_position, which the sink writes.
type facts struct {
	ID          string `json:"event_id,omitempty"`
	Key         string `json:"event_key,omitempty"`
	Reason      string `json:"failure_reason"`
	Class       string `json:"failure_class"`
	FailedAt    string `json:"failed_at"`
	FirstFailed string `json:"first_failed_at"`
	Attempts    int    `json:"attempts"`
	Destination string `json:"original_destination"`
}

// copy makes the message of a dead letter. One that could not be decoded is sent as the whole row,
// in JSON.
func (l *DeadLetterRow) copy(to *event.Route, columns int) *event.Event {
	dead := &l.Event
	ev := &event.Event{
		Position: dead.Position, CommitTime: dead.CommitTime, Time: dead.Time,
		ID: short(dead.ID, maxShort), Aggregate: short(dead.Aggregate, maxKey), Key: short(dead.Key, maxKey), Type: short(dead.Type, maxShort),
		Payload: dead.Payload, PayloadKind: dead.PayloadKind, Columns: make([][]byte, columns), Route: to, Copy: true,
	}
	if ev.ID == nil {
		ev.ID = []byte(ev.Position.String()) // a message has an id
	}
	if dead.Raw != nil {
		ev.Payload, ev.PayloadKind = dead.Raw, event.JSON
	}
	ev.Hash = uint64(*event.Digest(ev.Position.Append(nil)))
	last := l.Died
	if l.Last != nil {
		last = *l.Last
	}
	first := last
	if l.First != nil {
		first = *l.First
	}
	f := facts{
		ID: cutText(dead.ID), Key: cutText(dead.Key), Reason: reasonText(l.Reason, l.Text), Class: l.Class,
		FailedAt: stamp(last), FirstFailed: stamp(first), Attempts: l.Attempts,
		Destination: cutText([]byte(destination(dead.Route.Name, dead.Route.RoutingKey))),
	}
	ev.Headers, _ = json.Marshal(&f) //nolint:errcheck // strings and a number are always JSON
	return ev
}

// short returns nil for a value that is too long for its place; a header has its beginning instead.
func short(b []byte, most int) []byte {
	if len(b) > most {
		return nil
	}
	return b
}

// cutText is the beginning of a text that may be very long.
func cutText(b []byte) string {
	if len(b) <= maxKey {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:maxKey]), "") + "…"
}

func reasonText(reason, text string) string {
	if text == "" {
		return reason
	}
	return reason + ": " + text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
