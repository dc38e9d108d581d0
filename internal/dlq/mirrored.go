package dlq

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// A letter may be dead because of its id, type, key or headers: the mirror's message carries of them only what any broker
// takes.
const (
	maxShort = 255  // bytes of a message id and a type: AMQP's short strings
	maxKey   = 1024 // bytes of an aggregate and a key
)

// facts are the headers of a mirrored letter, beside cdc_position, which the sink writes.
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

// event is the message of a letter. What could not be decoded goes as the whole row, in JSON.
func (l *letter) event(to *outbox.Route, columns int) *outbox.Event {
	ev := &outbox.Event{
		Position: outbox.Position{Commit: l.commit, Index: l.index}, CommitTime: l.commitTime, Time: l.eventTime,
		ID: short(l.id, maxShort), Aggregate: short(l.aggregate, maxKey), Key: short(l.key, maxKey), Type: short(l.kind, maxShort),
		Payload: l.payload, PayloadKind: l.payloadKind, Columns: make([][]byte, columns), Route: to,
	}
	if ev.ID == nil {
		ev.ID = []byte(ev.Position.String()) // a message has an id
	}
	if l.raw != nil {
		ev.Payload, ev.PayloadKind = l.raw, outbox.JSON
	}
	ev.Hash = uint64(*outbox.Digest(ev.Position.Append(nil)))
	last := l.died
	if l.last != nil {
		last = *l.last
	}
	first := last
	if l.first != nil {
		first = *l.first
	}
	f := facts{
		ID: cutText(l.id), Key: cutText(l.key), Reason: reasonText(l.reason, l.words), Class: l.class,
		FailedAt: stamp(last), FirstFailed: stamp(first), Attempts: l.attempts, Destination: cutText([]byte(destination(l.name, l.routingKey))),
	}
	ev.Headers, _ = json.Marshal(&f) //nolint:errcheck // strings and a number are always JSON
	return ev
}

// short is nil for what is too long to be sent in that place; it stands in a header, cut.
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

func reasonText(reason, words string) string {
	if words == "" {
		return reason
	}
	return reason + ": " + words
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
