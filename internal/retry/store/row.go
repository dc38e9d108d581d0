// The rows of the retry table and of the dead letters, and what the store says of them.

package store

import (
	"bytes"
	"crypto/sha256"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Row is an event as the tables of the siding hold it: all that is needed to publish it after its
// outbox row is gone.
type Row struct {
	N           int64 // its number, unique in the database and increasing: the row's version, and its name for people
	Incarnation int64 // of the slot
	Event       outbox.Event
	Chain       uint64
	Ordered     bool // it is counted by its chain
	Unit, Dest  uint64
	Dead        bool // it is, or is to be, a dead letter

	Class       sink.Class
	Reason      sink.Reason // "" : it was never refused, it waits behind another one or its destination was paused
	Words       string      // the broker's, of the last refusal; when read, with # for numbers and at most ErrorSize bytes
	Destination string      // as the operator would name it
	Attempts    int         // that count against retry.max_attempts
	First, Last time.Time   // first and last refusal; zero without one. Once an attempt is spent, First is of the first that spent one
	ParkedAt    time.Time   // filled in by the store when it is read
	NextAttempt time.Time   // only of a head that was refused; zero: at once
}

// Count is how many rows hold a chain. Event has what Place needs: aggregate, key, hash and route.
type Count struct {
	Event outbox.Event
	Chain uint64
	Unit  uint64
	Rows  int
}

// Run is the beginning of a chain. Blocked says that an open dead letter of the chain holds it
// (followers: hold): nothing of it may go.
type Run struct {
	Chain   uint64
	Rows    []*Row
	Blocked bool
}

// Cursor is a place in the order (unit, dest, incarnation, position).
type Cursor struct {
	Unit, Dest  uint64
	Incarnation int64
	Position    outbox.Position
}

// Result is what became of a row that was fed, or was too old to be.
type Result struct {
	Row  *Row
	Kind ResultKind
	// Of Backoff and Dead. No Reason: the row was not refused, what it says of its last refusal
	// stays.
	Class       sink.Class
	Reason      sink.Reason
	Words       string
	Destination string
	Attempts    int
	After       time.Duration // of Backoff: until the next attempt; 0: when its destination is open
}

// ResultKind says what to do with a row.
type ResultKind uint8

// The kinds of results.
const (
	Delivered ResultKind = iota // it is deleted
	Backoff                     // it waits for the next attempt
	Dead                        // it becomes a dead letter
)

// Scope is what a chain is, by delivery.ordering.
type Scope uint8

// The scopes.
const (
	PerKey  Scope = iota // key, pipelined: the events of a key and unit; an event without a key is a chain of its own
	PerUnit              // commit: all events of a unit
	Free                 // none: each event is a chain of its own
)

// Chain is the chain of an event in the tables, and whether it is counted (Row.Ordered). Line.Chain
// is 0 where it is not.
func (s Scope) Chain(ev *outbox.Event, unit uint64) (chain uint64, ordered bool) {
	switch s {
	case PerUnit:
		return max(unit, 1), ev.Fault == nil
	case Free:
		return max(uint64(ev.Position.Commit)^uint64(ev.Position.Index)<<31^unit, 1), false // unlike Hash it can be told from a row
	default:
		return max(ev.Hash^unit, 1), ev.Ordered
	}
}

// Owned is the position of a row or letter, and the event that it is of.
type Owned struct {
	Position outbox.Position
	ID       []byte // the SHA-256 of the event's id, so that a page is small; nil: it has none
	Purged   bool   // nobody knows any more whose it was
}

// Is reports whether the row is the event's. It is the rule of Park: the same id, or neither has
// one, or the row is purged, which has no id to compare.
func (o *Owned) Is(ev *outbox.Event) bool {
	if o.Purged || o.ID == nil || ev.ID == nil {
		return o.Purged || o.ID == nil && ev.ID == nil
	}
	id := sha256.Sum256(ev.ID)
	return bytes.Equal(o.ID, id[:])
}

// Refusal is how class and reason of a last refusal are stored: a row that was never refused has
// neither.
func Refusal(class sink.Class, reason sink.Reason) (string, string) {
	if reason == "" {
		return "", ""
	}
	return class.String(), string(reason)
}
