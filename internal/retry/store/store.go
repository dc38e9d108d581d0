// Package store defines the retry table and the dead letters for the rest of the relay: rows,
// requests, and the interface. internal/retry/postgres implements the interface with PostgreSQL,
// internal/retry/memorytest in memory for tests.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Store keeps the rows of one slot: postgres.Store in production, memorytest.Store in tests. Both
// pass one conformance suite.
//
// Each method is one statement in one round trip under the fence: it changes and returns nothing
// unless the epoch of the slot is still ours (ErrFenced). (Load and Requests may be several.) What
// only reads takes no lock: the epoch may have been raised when its answer arrives. Any other error
// of a method that writes is one of two kinds. Either the statement certainly did nothing
// (errors.As *Refused), or its outcome is unknown: then the same call must be repeated before any
// other. Every method may be called again after it has succeeded: the second call changes nothing.
//
// Times that are read are on this process's clock, whatever the database's says.
//
// The callers: Load is called before the reader starts. The reader calls Positions (for Known), the
// writer calls Lease and Defer, and the feeder calls all others.
type Store interface {
	// Lease takes LeaseSize row numbers, from first on. They are higher than the number of any row.
	Lease(ctx context.Context) (first int64, err error)

	// Load counts the rows of each ordering group that is ordered, including dead letters that
	// block their ordering group, and returns the highest position of all rows and dead letters
	// (zero: there are none). An ordering group may come in several counts, which must be added.
	// The ordering groups of rows that were deferred under another ordering are computed again.
	// each may wait.
	Load(ctx context.Context, each func(Count) error) (highest event.Position, err error)

	// Positions lists the positions of rows and dead letters from that one on, in order, at most
	// limit, each with the id of its event. Those of former incarnations of the slot are not among
	// them: their transactions do not come again.
	Positions(ctx context.Context, from event.Position, limit int) ([]Owned, error)

	// Defer writes rows, all or none: to the retry table, Dead ones to the dead letters. A position
	// that is stored already with the same event id is left as it is. If it is stored with another
	// id, the whole call fails with a *Refused that names the row.
	Defer(ctx context.Context, rows []*Row) error

	// Runs reads the first rows of each of these ordering groups, in order: at most run rows of an
	// ordering group, at most about size bytes in all (every ordering group's first row before any
	// second; at least one), and none from the first with N above acked on. An ordering group with
	// neither rows nor a dead letter that blocks it is not in the result; one that is in the result
	// without rows is Blocked, has a first row above acked, or had no room. An error that is about
	// a row, and so would occur again, is a *Refused.
	Runs(ctx context.Context, groups []uint64, run int, size int64, acked int64) ([]Run, error)

	// Sweep lists the ordering groups of the next limit rows for the cursor's destination, in order
	// of position, each once, and where to go on. No ordering groups: the destination has no more
	// rows. A zero cursor begins at the first destination, and next says which that is.
	Sweep(ctx context.Context, at Cursor, limit int) (groups []uint64, next Cursor, err error)

	// Skip is the first destination after that of the cursor; ok is false when there is none. A
	// cursor at LastDest leads past its exchange or topic, a zero one to the first destination.
	Skip(ctx context.Context, at Cursor) (next Cursor, ok bool, err error)

	// Due lists the ordering groups whose first row has a NextAttempt in the past: at most limit,
	// the longest due first. It also returns the time until the next one is due; 0 when there is
	// none. An ordering group that is due but may not go (its destination is paused) would be
	// listed again and again, and keep others out of the list. So it must be given a Backoff with
	// After 0; Sweep finds it then. An ordering group that a dead letter blocks is not listed.
	Due(ctx context.Context, limit int) (groups []uint64, next time.Duration, err error)

	// Apply writes the results of rows: all or none. A row that no longer exists with that N is
	// skipped.
	Apply(ctx context.Context, results []Result) error

	// Requests lists operators' requests that were not answered, oldest first, each with its row or
	// dead letter. Requests that need no broker come first, without the fields that are only sent
	// (Event.Payload, Headers, Columns and Raw). Requests of Replay follow, with all fields, at
	// most about size bytes of them; with size 0 they come without these fields too. An error that
	// is about a row is a *Refused.
	Requests(ctx context.Context, limit int, size int64) ([]Request, error)

	// Answer carries out requests that need no broker (discard, retry, dead_letter, redact, purge),
	// and writes the result of a replay, with the audit. Every request is answered once. A request
	// that an operator has cancelled is not carried out, but a replay that was confirmed counts as
	// done. done tells for each request whether it took place. A row that left its table, and a
	// dead letter that was closed, no longer block their ordering group. A replay that was neither
	// confirmed nor rejected still waits.
	Answer(ctx context.Context, answers []Answer) (done []bool, err error)

	// Expire empties dead letters that were closed longer than keep ago (0: never), removes emptied
	// ones whose events the slot cannot send any more, and forgets requests answered longer than
	// keep ago: at most about limit of each. It returns how many rows changed. It is called from
	// time to time, and again while that number is not 0. One call that empties dead letters adds
	// one entry to the audit, about row 0.
	Expire(ctx context.Context, keep time.Duration, limit int) (changed int, err error)
}

// Config tells whose rows a store keeps, and how.
type Config struct {
	Slot        string
	SystemID    string   // of the cluster; rows of another one are neither read nor sent
	Incarnation int64    // of the slot
	Epoch       int64    // of this leader
	Columns     []string // names of Event.Columns
	Scope       Scope
	Block       bool // dead_letters.on_dead_letter: block
}

// LeaseSize is how many row numbers a Lease takes: the increment of cdc_relay.row_number.
const LeaseSize = 1000

// LastDest is the Dest of a cursor behind all destinations of its exchange or topic. Digests are
// ordered as signed numbers.
const LastDest uint64 = 1<<63 - 1

// ErrFenced means that a newer leader has raised the epoch: nothing was read or changed, and this
// leader must not try again.
var ErrFenced = errors.New("fenced by a newer leader")

// Refused is a statement that the database refused: it did nothing.
type Refused struct {
	Row *Row // the row at fault; nil if it is not known
	Err error
	// This try did nothing because rows of its size take too long. That says nothing about an
	// earlier try of unknown outcome.
	TooLarge bool
}

func (r *Refused) Error() string {
	if r.Row != nil {
		return fmt.Sprintf("row of event %s: %v", r.Row.Event.Position, r.Err)
	}
	return r.Err.Error()
}

// Unwrap is the database's error.
func (r *Refused) Unwrap() error { return r.Err }

// TakenPosition is the *Refused for a row whose position another event has already.
func TakenPosition(row *Row) error {
	return &Refused{Row: row, Err: fmt.Errorf("defer: its position has another event already")}
}

// ByAge is the actor of a purge by age, for the audit.
const ByAge = "relay"

// WhyByAge is the reason for a purge by age, for the audit.
func WhyByAge(keep time.Duration) string { return "dead_letters.keep: " + keep.String() }

// IsRefused reports whether an error of a statement that reads is about a row, and so would occur
// again.
func IsRefused(err error) bool {
	var no *Refused
	return errors.As(err, &no)
}
