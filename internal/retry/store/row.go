// Rows, requests about them, and how both are stored.

package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Row is an event as the retry table and the dead letters hold it: all that is needed to publish it
// after its outbox row is gone.
type Row struct {
	// the row's number, unique in the database and increasing: the row's version, and its name for
	// people
	N                     int64
	Incarnation           int64 // of the slot
	Event                 event.Event
	Group                 uint64
	Ordered               bool // later events of its ordering group wait for the row
	ExchangeOrTopic, Dest uint64
	Dead                  bool // it is, or is to be, a dead letter

	Class sink.Class
	// "": the row was never rejected; it waits behind another row, or its destination was paused
	Reason sink.Reason
	// the broker's text of the last rejection; when read, with # for numbers and at most TextSize
	// bytes
	Text        string
	Destination string // as the operator would name it
	Attempts    int    // that count against retry.max_attempts
	// time of the first and last rejection; zero without one. Once attempts are spent, First is the
	// first rejection that spent one
	First, Last time.Time
	DeferredAt  time.Time // filled in by the store when it is read
	Bytes       int64     // likewise: of the event, also where fields to be sent are left out
	// set after a rejection, when an operator requested a retry, or by the rate of a resend; zero:
	// the row does not wait for a time
	NextAttempt time.Time
	// the job of the resend that copied the row; 0: none. Its Position is none of the WAL
	Resend int64
}

// Cursor is a place in the order (exchange or topic, dest, incarnation, position).
type Cursor struct {
	ExchangeOrTopic, Dest uint64
	Incarnation           int64
	Position              event.Position
}

// ResentRow is a place among the rows of resends.
type ResentRow struct{ Job, N int64 }

// Result is the result of a row that was sent, or that was too old to be sent.
type Result struct {
	Row  *Row
	Kind ResultKind
	// For Backoff and Dead. Without a Reason the row was not rejected, and keeps its last
	// rejection.
	Class       sink.Class
	Reason      sink.Reason
	Text        string
	Destination string
	Attempts    int
	After       time.Duration // of Backoff: until the next attempt; 0: when its pause ends
}

// ResultKind says what to do with a row.
type ResultKind uint8

// The kinds of results.
const (
	Delivered ResultKind = iota // it is deleted
	Backoff                     // it waits for the next attempt
	Dead                        // it becomes a dead letter
)

// StoredPosition is the position of a row or dead letter, and the identity of its event.
type StoredPosition struct {
	Position event.Position
	ID       []byte // the SHA-256 of the event's id, so that a page is small; nil: it has none
	Purged   bool   // the id is no longer known
	LeftOut  bool   // there is no ID because it is, or may be, left out (event.LeftOut)
	// Committed is the commit time of its transaction, in microseconds since 1970.
	Committed int64
}

// Matches reports whether the stored row belongs to the event. The rule is the same as in Defer:
// the ids are equal, or neither has an id, or the row is purged and has no id to compare.
//
// An id of which one side lacks the value, since source.max_event_bytes was changed in between, is
// not compared. The commit time is: whoever writes a position a second time commits later.
func (o *StoredPosition) Matches(ev *event.Event) bool {
	switch {
	case o.Purged || o.ID == nil && ev.ID == nil:
		return true
	case o.LeftOut || ev.ID == nil && ev.LeftOut != nil:
		return o.Committed == ev.CommitTime.UnixMicro()
	case o.ID == nil || ev.ID == nil:
		return false
	}
	id := sha256.Sum256(ev.ID)
	return bytes.Equal(o.ID, id[:])
}

// RefusalColumns returns class and reason of a last rejection as they are stored: a row that was
// never rejected has neither.
func RefusalColumns(class sink.Class, reason sink.Reason) (string, string) {
	if reason == "" {
		return "", ""
	}
	return class.String(), string(reason)
}

// RequestKind is what an operator requests.
type RequestKind = dlq.Kind

// The kinds of requests.
const (
	Replay     = dlq.Replay
	Discard    = dlq.Discard
	Redact     = dlq.Redact
	Retry      = dlq.Retry
	DeadLetter = dlq.ToDeadLetter
	Purge      = dlq.Purge
)

// Request is a row of cdc_relay.request that waits.
type Request struct {
	ID   int64
	Kind RequestKind
	Row  *Row // nil: the row no longer exists, or its state does not allow the request
	// Of Replay: where to send it instead; nil parts stay as they were.
	Route event.Route
	// Begun is the epoch of the leader that called BeginReplay; 0: none did.
	Begun int64
}

// Answer is the result of a request. Outcome is the broker's answer to a replay; for other kinds it
// is ignored.
type Answer struct {
	Request Request
	Outcome sink.Outcome
}

// Verdict is what AnswerRequests does with a request.
type Verdict string

const (
	VerdictCarryOut Verdict = "carry out" // it needs no broker
	VerdictReplayed Verdict = "replayed"
	VerdictRefused  Verdict = "refused"
	// the row does not exist, or its state does not allow the request
	VerdictMissing Verdict = "missing"
	VerdictWaits   Verdict = "waits"
)

// Verdict returns what becomes of the request. It depends on the kind, the row, and the broker's
// answer.
func (a *Answer) Verdict() Verdict {
	switch {
	case a.Request.Row == nil:
		return VerdictMissing
	case a.Request.Kind != Replay:
		return VerdictCarryOut
	case a.Outcome.State == sink.Confirmed:
		return VerdictReplayed
	case a.Outcome.State == sink.Rejected:
		return VerdictRefused
	}
	return VerdictWaits
}

// Result returns the result of a refused replay in the form of a row's result.
func (a *Answer) Result() Result {
	r := Result{Row: a.Request.Row}
	if f := a.Outcome.Fault; a.Verdict() == VerdictRefused && f != nil {
		r.Class, r.Reason, r.Text, r.Destination, r.Attempts = f.Class, f.Reason, f.Text, f.Destination, a.Request.Row.Attempts
	}
	return r
}

// RefusalText returns the result of a refused replay as operators read it.
func RefusalText(a *Answer) string {
	r := a.Result()
	return BoundedText(fmt.Sprintf("%s: %s", r.Reason, r.Text), TextSize)
}

// NotAllowed is the result of a request that could not be carried out.
const NotAllowed = "it no longer exists, or its state does not allow this"

// TextPurged replaces the error text of a failed replay once its row is purged or redacted: the
// text may contain names that were made from data.
const TextPurged = "its text is purged"

// NormalText is the text of a rejection as the tables keep it: without numbers, so that equal
// faults have equal texts.
func NormalText(words string) string {
	return BoundedText(dlq.WithoutNumbers(BoundedText(words, FullTextSize)), TextSize)
}

// BoundedText is s as a text column can hold it: valid, without NUL, and at most size bytes.
func BoundedText(s string, size int) string {
	if len(s) > size {
		for size > 0 && !utf8.RuneStart(s[size]) {
			size--
		}
		s = s[:size]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
}

// TextSize is how many bytes are kept of the text of a rejection, and of a destination's name.
const TextSize = 500

// FullTextSize is how many bytes are kept of the text of a rejection as the broker gave it.
const FullTextSize = 4 * TextSize

// Places tells how the sink that is configured places events. A row keeps the route that it was
// given while that is a route of this kind of sink: the names of another broker mean nothing here.
type Places struct {
	Sink      string // the kind
	Templates string // of its routes, as people read them
	Keyed     bool   // its routes have a routing key
	// Route places an event that has no Route.
	Route func(ev *event.Event) event.Route
	// Switched is told what was found in the rows of an earlier configuration; nil: nobody is.
	Switched func(Switch)
}

// Switch is what has changed since the rows were placed.
type Switch struct {
	From            string // the kind of sink; "": not known
	Sink, Templates bool   // it is another one; they are others of the same sink
	// Placed rows and dead letters got a new place. Kept ones have one that the templates would not
	// give them now.
	Placed, Kept int
	Cancelled    int // operators' jobs that named a place of another kind of sink
}

// GroupedBy is what cdc_relay.slots stores of how rows are grouped and placed.
func (p *Places) GroupedBy(scope event.Scope, keys *event.KeyHash) string {
	by := scope.String()
	if keys != nil {
		by += fmt.Sprintf(" by secret %08x", uint32(keys.Of(nil, nil)))
	}
	if p == nil {
		return by
	}
	return by + "; " + p.Sink + ": " + p.Templates
}

// SwitchSince reads what GroupedBy has stored, and returns what has changed since then.
func (p *Places) SwitchSince(by string) (s Switch) {
	_, placed, known := strings.Cut(by, "; ")
	if p == nil || !known {
		return s
	}
	kind, templates, _ := strings.Cut(placed, ": ")
	s.From, s.Sink = kind, kind != p.Sink
	s.Templates = !s.Sink && templates != p.Templates
	return s
}

// PlaceRow gives the row a new place if its own means nothing any more, and reports whether it did.
// Its partition on Kafka is found when it goes: until it is deferred again its Dest is 0.
func (p *Places) PlaceRow(row *Row, s *Switch) bool {
	ev, was := &row.Event, *row.Event.Route
	ev.Route = nil
	now := p.Route(ev)
	ev.Route = &was
	switch {
	case sameName(was.Name, now.Name) && sameName(was.RoutingKey, now.RoutingKey):
		return false
	case !s.Sink && was.Name != nil && (was.RoutingKey != nil) == p.Keyed:
		s.Kept++
		return false
	}
	s.Placed++
	ev.Route, row.ExchangeOrTopic, row.Dest = &now, 0, 0
	if ev.Fault != nil || now.Name == nil {
		return true
	}
	if row.ExchangeOrTopic = sink.ExchangeOrTopicOf(now.Name); now.RoutingKey != nil {
		row.Dest = sink.DestOfPair(row.ExchangeOrTopic, now.RoutingKey)
	}
	return true
}

func sameName(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
