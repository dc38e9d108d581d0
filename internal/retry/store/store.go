// Package store defines the retry table and the dead letters for the rest of the relay: rows,
// requests, and the interface. internal/retry/postgres implements the interface with PostgreSQL,
// internal/retry/memorytest in memory for tests.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Store keeps the rows of one slot: postgres.Store in production, memorytest.Store in tests. Both
// pass one conformance suite.
//
// Each method is one statement in one round trip under the fence: it changes and returns nothing
// unless the epoch of the slot is still ours (ErrFenced). (RegroupRows, ExchangesWithRows, ReadRows
// of large rows, ReclaimSpace and WaitingRequests may be several.) What only reads takes no lock:
// the epoch may have been raised when its answer arrives. Any other error of a method that writes
// is one of two kinds. Either the statement certainly did nothing, in no try (errors.As *Refused),
// or its outcome is unknown: then the same call must be repeated before any other. Every method may
// be called again after it has succeeded: the second call changes nothing.
//
// Times that are read are on this process's clock, whatever the database's says.
//
// The callers: RegroupRows, ExchangesWithRows and MissingExchanges are called before the reader
// starts. The reader calls PositionsFrom (for Known), the writer calls LeaseNumbers and Defer, and
// the feeder calls all others. (What reads large rows for it calls BeginReplay, which may come at
// any time.)
type Store interface {
	// LeaseNumbers takes LeaseSize row numbers, from first on. They are higher than the number of
	// any row.
	LeaseNumbers(ctx context.Context) (first int64, err error)

	// RegroupRows gives the rows and open dead letters that were deferred under another ordering
	// the ordering group of the present one, and those that were deferred for another kind of sink
	// a place of this one (Places). It returns the highest position in both tables (zero: they
	// are empty). It is called once in a term, before any row is read or deferred. When the former
	// leader recorded the same it reads no rows.
	RegroupRows(ctx context.Context) (highest event.Position, err error)

	// ExchangesWithRows lists the exchanges and topics of rows, and of dead letters that block
	// their ordering group, each once. Nothing waits for one that is not listed. Its cost is by
	// exchanges and topics, not by rows or destinations.
	ExchangesWithRows(ctx context.Context) ([]uint64, error)

	// MissingExchanges lists the exchanges that were missing when one of their events was deferred,
	// each once, with what was said of it.
	MissingExchanges(ctx context.Context) ([]MissingExchange, error)

	// PositionsFrom lists the positions of rows and dead letters from that one on, in order, at
	// most limit, each with the id of its event. Those of former incarnations of the slot are not
	// among them: their transactions do not come again.
	PositionsFrom(ctx context.Context, from event.Position, limit int) ([]StoredPosition, error)

	// Defer writes rows, all or none: to the retry table, Dead ones to the dead letters. A position
	// that is stored already with the same event id is left as it is. If it is stored with another
	// id, the whole call fails with a *Refused that names the row.
	Defer(ctx context.Context, rows []*Row) error

	// ReadRows answers each Want with a RowRun, in order of the wants: the rows of the ordering
	// group behind After, in order of position, at most run, none from the first with N above acked
	// on (but for those of a resend, which the caller's writer has not written). In all it reads at
	// most about size bytes (every want's first row before any second; at least one). A row behind
	// After is never passed by a later one of its ordering group, whatever limits a RowRun. After
	// is the last row that was delivered and deleted: entries of deleted rows, which stay in the
	// index while any session has an old snapshot, are not read again. An error that is about a
	// row, and so would occur again, is a *Refused.
	ReadRows(ctx context.Context, wants []Want, run int, size, acked int64) ([]RowRun, error)

	// GroupsOfDestination lists the ordering groups of the next limit rows for the cursor's
	// destination, in order of position, each once, and where to go on. No ordering groups: the
	// destination has no more rows.
	GroupsOfDestination(ctx context.Context, at Cursor, limit int) (groups []uint64, next Cursor, err error)

	// GroupsOfResends lists the ordering groups of the next limit rows of resends that may go now,
	// each once, and the place of the last: in order of job and number, from behind a place on.
	// some: there are rows of resends.
	GroupsOfResends(ctx context.Context, after ResentRow, limit int) (groups []uint64, last ResentRow, some bool, err error)

	// NextDestination is the first destination after that of the cursor; ok is false when there is
	// none. Digests are ordered as signed numbers.
	NextDestination(ctx context.Context, at Cursor) (next Cursor, ok bool, err error)

	// ApplyResults writes the results of rows: all or none. A row that no longer exists with that N
	// is skipped.
	ApplyResults(ctx context.Context, results []Result) error

	// ReclaimSpace gives the space of the retry table and of its indexes back to the operating
	// system, when the table is large and has no row of any slot or system. It waits for no lock,
	// and keeps nobody waiting longer than a second. It is called when nothing is deferred any
	// more, at most once a minute.
	ReclaimSpace(ctx context.Context) (Reclaimed, error)

	// WaitingRequests lists operators' requests that were not answered, oldest first, each with its
	// row or dead letter. Requests that need no broker come first, without the fields that are only
	// sent (Event.Payload, Headers, Columns and Raw). Requests of Replay follow, with all fields,
	// at most about size bytes of them; with size 0 they come without these fields too. An error
	// that is about a row is a *Refused.
	WaitingRequests(ctx context.Context, limit int, size int64) ([]Request, error)

	// BeginReplay records in a request that waits that this leader begins to read the row of its
	// event (Event.LeftOut). The row may need more memory than there is: a leader that finds a
	// request that an earlier one has begun does not read that row again.
	BeginReplay(ctx context.Context, request int64) error

	// AnswerRequests carries out requests that need no broker (discard, retry, dead_letter, redact,
	// purge), and writes the result of a replay, with the audit. Every request is answered once. A
	// request that an operator has cancelled is not carried out, but a replay that was confirmed
	// counts as done. done tells for each request whether it took place. A row that left its table,
	// and a dead letter that was closed, no longer block their ordering group. A replay that was
	// neither confirmed nor rejected still waits.
	AnswerRequests(ctx context.Context, answers []Answer) (done []bool, err error)

	// ExpireDeadLetters empties dead letters that were closed longer than keep ago (0: never),
	// removes emptied ones whose events the slot cannot send any more, and forgets requests
	// answered longer than keep ago: at most about limit of each. It returns how many rows changed.
	// It is called from time to time, and again while that number is not 0. One call that empties
	// dead letters adds one entry to the audit, about row 0.
	ExpireDeadLetters(ctx context.Context, keep time.Duration, limit int) (changed int, err error)
}

// Config tells whose rows a store keeps, and how.
type Config struct {
	Slot        string
	SystemID    string   // of the cluster; rows of another one are neither read nor sent
	Incarnation int64    // of the slot
	Epoch       int64    // of this leader
	Columns     []string // names of Event.Columns
	Scope       event.Scope
	Block       bool    // dead_letters.on_dead_letter: block
	Places      *Places // nil: rows keep the place they have
	// Keys computes Event.Hash of a key; nil: without a secret.
	Keys *event.KeyHash
}

// MissingExchange is an exchange with rows that were refused because it was missing
// (sink.NoExchange).
type MissingExchange struct {
	ExchangeOrTopic   uint64
	Destination, Text string // of one of them
}

// LeaseSize is how many row numbers LeaseNumbers takes: the increment of cdc_relay.row_number.
const LeaseSize = 1000

// ErrFenced is the error of a statement that found another epoch: a newer leader leads.
var ErrFenced = dlq.ErrFenced

// Refused is a statement that the database refused: it did nothing.
type Refused struct {
	Row *Row // the row at fault; nil if it is not known
	Err error
}

func (r *Refused) Error() string {
	if r.Row != nil {
		return fmt.Sprintf("row of event %s: %v", r.Row.Event.Position, r.Err)
	}
	return r.Err.Error()
}

// Unwrap is the database's error.
func (r *Refused) Unwrap() error { return r.Err }

// PositionTaken is the *Refused for a row whose position another event has already.
func PositionTaken(row *Row) error {
	return &Refused{Row: row, Err: fmt.Errorf("defer: its position has another event already")}
}

// AgeActor is the actor of a purge by age, for the audit.
const AgeActor = dlq.Itself

// AgeReason is the reason for a purge by age, for the audit.
func AgeReason(keep time.Duration) string { return "dead_letters.keep: " + keep.String() }

// IsRefused reports whether an error of a statement that reads is about a row, and so would occur
// again.
func IsRefused(err error) bool {
	var no *Refused
	return errors.As(err, &no)
}

// RowPosition is the position of a row; rows behind it are read. Zero is before all rows.
type RowPosition struct {
	Incarnation int64
	Position    event.Position
}

// Want asks for the first rows of an ordering group behind a position.
type Want struct {
	Group uint64
	After RowPosition
}

// RowRun is the answer to a Want. Blocked says that an open dead letter blocks the ordering group
// (on_dead_letter: block): none of its rows may go, and none was looked for. More says that the
// table has rows of the ordering group behind those returned, as far as the statement saw: also
// rows above acked, rows without room, and a large one. So a RowRun without rows that is neither
// Blocked nor More says that the table has nothing of the ordering group behind After.
type RowRun struct {
	Group   uint64
	Rows    []*Row
	Blocked bool
	More    bool
	Failed  bool // its first row cannot be read; the caller of ReadRows sets it
}

// Stats counts the rows of one slot.
type Stats struct {
	At       time.Time // when it was counted; zero: not yet
	Deferred int       // rows of the retry table
	// commit time of the first row by position, which is the oldest; zero: there is none
	OldestDeferred time.Time
	Dead           int       // dead letters that are open
	OldestDead     time.Time // when the first of them became one; zero: there is none
	// of both tables on disk, with indexes and TOAST, and the rows of other slots
	Bytes int64
	// of the destinations that were paused, the longest first, as many as are counted
	Waiting map[sink.Place]dlq.WaitingRows
}

// StatsLimit is how many rows, and dead letters, are counted at most. A million take 100 ms with an
// index-only scan, and seconds where the visibility map does not allow one. What takes longer than
// statement_timeout, 15 s, is counted in part.
const StatsLimit = 10_000_000

// Reclaimed is the outcome of ReclaimSpace.
type Reclaimed string

// The outcomes. After all but ReclaimTruncated the table is as it was.
const (
	ReclaimTruncated Reclaimed = "truncated"
	ReclaimInUse     Reclaimed = "in use" // another session has a lock on it, as a dump or a vacuum
	// it is small, or has a row of any slot or system, or the role has not the right
	ReclaimNothing Reclaimed = "kept"
)
