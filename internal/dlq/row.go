// Row is a deferred row or a dead letter as operators see it.

package dlq

import (
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Table is a table of rows.
type Table struct {
	name string
	at   string // when a row came to it
}

// The tables of rows.
var (
	DeadLetters = &Table{"cdc_relay.dead_letter", "died_at"}
	Deferred    = &Table{"cdc_relay.retry", "deferred_at"} // the retry table
)

// Row is a deferred row or a dead letter, as lists show it. Nil means NULL, or not yet.
type Row struct {
	N        int64  `json:"n"`
	State    string `json:"state"`
	Position string `json:"position"` // as in the message header cdc_position

	ID           *string   `json:"id"` // null: the row could not be decoded, or is purged
	Aggregate    *string   `json:"aggregate"`
	Key          *string   `json:"key"`
	Type         *string   `json:"type"`
	CommittedAt  time.Time `json:"committed_at"`
	PayloadBytes *int64    `json:"payload_bytes"` // null: no payload, or no longer

	Cut []string `json:"cut,omitempty"` // which values are not shown to their end

	// values that are left out, because the row is over source.max_event_bytes; nil: none
	LeftOut *LeftOut `json:"left_out,omitempty"`

	Destination string `json:"destination"` // exchange or topic, and behind a slash the routing key

	// Of the last rejection; "" for a row that waits behind another one and was not rejected.
	Class   string `json:"class"`
	Reason  string `json:"reason"`
	Error   string `json:"error"`   // the broker's error text, with # for numbers
	Accused string `json:"accused"` // what the broker's answer accuses

	Attempts      int        `json:"attempts"` // that count against retry.max_attempts
	FirstFailedAt *time.Time `json:"first_failed_at"`
	FailedAt      *time.Time `json:"failed_at"`
	DeferredAt    time.Time  `json:"deferred_at"`
	NextAttempt   *time.Time `json:"next_attempt,omitempty"` // of a deferred row

	DiedAt     *time.Time `json:"died_at,omitempty"` // of a dead letter, as what follows
	ClosedAt   *time.Time `json:"closed_at,omitempty"`
	MirroredAt *time.Time `json:"mirrored_at,omitempty"`
	Redacted   bool       `json:"redacted,omitempty"`

	// it is of another system (pg_upgrade, restore or copy): nobody acts on it here
	Copied bool `json:"copied,omitempty"`
}

// LeftOut says where the values are that a row lacks.
type LeftOut struct {
	Table    string `json:"table"` // that a replay reads; "": it was a logical message
	RowBytes int64  `json:"row_bytes"`
}

// Page is a part of a list, and where the next one begins: "" at the end.
type Page struct {
	Rows []Row  `json:"items"`
	Next string `json:"next"`
}

// Detail is all that is known about a row.
type Detail struct {
	Row
	EventTime   time.Time `json:"event_time"` // of the timestamp column, else CommittedAt
	ContentType string    `json:"content_type"`
	Payload     *Content  `json:"payload"` // null: none, or no longer
	Traceparent *string   `json:"traceparent"`
	Headers     *Content  `json:"headers"` // the headers column
	Columns     []Column  `json:"columns,omitempty"`
	// why the row of the outbox could not be relayed as configured
	Fault *string  `json:"fault,omitempty"`
	Raw   *Content `json:"raw,omitempty"` // that row, or the text of the logical message
	// of a deferred row: the number of the first row of its key, which it waits for
	Behind *int64 `json:"behind,omitempty"`

	Requests []Request `json:"requests"` // the newest first
	Audit    []Entry   `json:"audit"`    // what was done, the newest first
}

// Content is bytes of an event for people: text as it is, anything else in base64. Hidden says that
// they are not shown.
type Content struct {
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
	Hidden bool    `json:"hidden,omitempty"`
	Cut    bool    `json:"cut,omitempty"` // there is more than is shown
}

// Column is an extra column of the outbox table.
type Column struct {
	Name  string   `json:"name"`
	Value *Content `json:"value"` // null: NULL
}

// Entry is a row of the audit.
type Entry struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Action string    `json:"action"`
	Why    string    `json:"why"`
	Result string    `json:"result"`
}

// scanned is a row as columnList returns it, where that differs from a Row.
type scanned struct {
	commit              pglogrepl.LSN
	index               uint32
	id, aggregate       []byte
	key, kind           []byte
	name, routingKey    []byte
	committed, deferred time.Time
	first, last, next   *time.Time
	died, closed, sent  *time.Time
	leftOut             *string
	bytes               int64
}

func (s *scanned) into(r *Row) []any {
	return []any{
		&r.N, &r.Copied, &s.commit, &s.index, &s.id, &s.aggregate, &s.key, &s.kind, &s.committed, &r.PayloadBytes,
		&s.name, &s.routingKey, &r.Class, &r.Reason, &r.Error, &r.Accused, &r.Attempts, &s.first, &s.last, &s.deferred,
		&s.next, &r.State, &s.died, &s.closed, &s.sent, &r.Redacted, &s.leftOut, &s.bytes,
	}
}

// finish makes the values those of the row, each cut to most bytes.
func (s *scanned) finish(r *Row, most int) {
	words, accused := []byte(r.Error), []byte(r.Accused)
	for _, v := range []struct {
		name  string
		value *[]byte
	}{
		{"id", &s.id},
		{"aggregate", &s.aggregate},
		{"key", &s.key},
		{"type", &s.kind},
		{"destination", &s.name},
		{"destination", &s.routingKey},
		{"error", &words},
		{"accused", &accused},
	} {
		if shorten(v.value, most) {
			r.Cut = append(r.Cut, v.name)
		}
	}
	r.Cut = slices.Compact(r.Cut)
	r.Error, r.Accused = strings.ToValidUTF8(string(words), ""), strings.ToValidUTF8(string(accused), "")
	r.Position = event.Position{Commit: s.commit, Index: s.index}.String()
	r.ID, r.Aggregate, r.Key, r.Type = text(s.id), text(s.aggregate), text(s.key), text(s.kind)
	if s.leftOut != nil {
		r.LeftOut = &LeftOut{*s.leftOut, s.bytes}
	}
	r.Destination = destination(s.name, s.routingKey)
	r.CommittedAt, r.DeferredAt = s.committed.UTC(), s.deferred.UTC()
	r.FirstFailedAt, r.FailedAt, r.NextAttempt = utc(s.first), utc(s.last), utc(s.next)
	r.DiedAt, r.ClosedAt, r.MirroredAt = utc(s.died), utc(s.closed), utc(s.sent)
}

// destination is where a row goes, as Filter.Destination takes it.
func destination(name, routingKey []byte) string {
	if routingKey == nil {
		return string(name)
	}
	return string(name) + "/" + string(routingKey)
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// octets keeps nil different from the empty text.
func octets(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
