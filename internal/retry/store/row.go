// The rows of the retry table and of the dead letters, and what the store reports of them.

package store

import (
	"bytes"
	"crypto/sha256"
	"time"

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

// Owned is the position of a row or dead letter, and the identity of its event.
type Owned struct {
	Position event.Position
	ID       []byte // the SHA-256 of the event's id, so that a page is small; nil: it has none
	Purged   bool   // the id is no longer known
	LeftOut  bool   // there is no ID because it is, or may be, left out (event.LeftOut)
	// Committed is the commit time of its transaction, in microseconds since 1970.
	Committed int64
}

// Matches reports whether the row is that of the event. The rule is the same as in Defer: the ids
// are equal, or neither has an id, or the row is purged and has no id to compare.
//
// An id of which one side lacks the value, since source.max_event_bytes was changed in between, is
// not compared. The commit time is: whoever writes a position a second time commits later.
func (o *Owned) Matches(ev *event.Event) bool {
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

// Refusal returns class and reason of a last rejection as they are stored: a row that was never
// rejected has neither.
func Refusal(class sink.Class, reason sink.Reason) (string, string) {
	if reason == "" {
		return "", ""
	}
	return class.String(), string(reason)
}
