package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Store keeps the rows of one slot: Postgres in production, Memory in the simulation. One conformance suite holds for both.
//
// Each method is one statement in one round trip under the fence: it changes and returns nothing unless the epoch of the
// slot is still ours (ErrFenced). (Requests may be two, the first without a lock.) Any other error of a method that writes is
// one of two kinds: the statement certainly did nothing (errors.As *Refused), or its outcome is unknown; then the same call
// has to be made again before any other. All may be called again after they have succeeded: a second time they change
// nothing.
//
// Times that are read are on this process's clock, whatever the database's says.
//
// Who calls: Load and Known's Positions before and beside the reader, Lease and Park the writer, the rest the feeder.
type Store interface {
	// Lease takes LeaseSize row numbers, from first on, higher than all that any row has.
	Lease(ctx context.Context) (first int64, err error)

	// Load counts what the tables hold of each chain that is ordered, letters that hold their chain among it, and gives
	// the highest position of all rows and letters (zero: there are none). A chain may come in several counts, which add
	// up. Chains of rows that were parked under another ordering are recomputed. each may wait.
	Load(ctx context.Context, each func(Count) error) (highest outbox.Position, err error)

	// Positions lists the positions of rows and letters from that one on, in order, at most limit,
	// with whose they are. Those of former incarnations of the slot are not among them: their
	// transactions do not come again.
	Positions(ctx context.Context, from outbox.Position, limit int) ([]Owned, error)

	// Park writes rows, all or none: to the retry table, Dead ones to the dead letters. A position that is there
	// already with the same event id is left as it is. With another id the whole call is a *Refused that names the row.
	Park(ctx context.Context, rows []*Row) error

	// Runs reads the first rows of each of these chains, in order: at most run rows of a chain, at most about size bytes
	// in all (every chain's first row before any second; at least one), and none from the first with N above acked on. A
	// chain with neither rows nor a letter that holds it is not in the answer; one without rows in it is Blocked, has a
	// first row above acked, or had no room. An error that is about a row, so that it comes again, is a *Refused.
	Runs(ctx context.Context, chains []uint64, run int, size int64, acked int64) ([]Run, error)

	// Sweep lists the chains of the next limit rows for the cursor's destination, in order of position, each once, and
	// where to go on. No chains: the destination has no more rows. A zero cursor begins at the first destination, and next
	// says which that is.
	Sweep(ctx context.Context, at Cursor, limit int) (chains []uint64, next Cursor, err error)

	// Skip is the first destination after that of the cursor; ok is false when there is none. A cursor at LastDest leads
	// past its unit, a zero one to the first destination.
	Skip(ctx context.Context, at Cursor) (next Cursor, ok bool, err error)

	// Due lists chains whose head's NextAttempt has come, at most limit, the longest due first, and how long it is until
	// the next one comes; 0 when there is none. One that may not go although it is due (its destination is paused) is
	// listed again, and keeps others out of the list, until it is given a Backoff with After 0: Sweep finds it then.
	// One that a letter holds is not listed.
	Due(ctx context.Context, limit int) (chains []uint64, next time.Duration, err error)

	// Apply does what came of rows: all of it or nothing. A row that is not there any more with that N is left out.
	Apply(ctx context.Context, results []Result) error

	// Requests lists what operators asked for and was not answered, oldest first, each with its row or letter. Those that need
	// no broker come first, without what is only sent (Event.Payload, Headers, Columns and Raw), and then those of Replay, with
	// all of it, at most about size bytes of them; with size 0 they are without it too. An error that is about a row is a
	// *Refused.
	Requests(ctx context.Context, limit int, size int64) ([]Request, error)

	// Answer carries out requests that need no broker (discard, retry, deadletter, redact, purge), and writes what became
	// of a replay, with the audit. Every request is answered once: one that an operator has cancelled is not carried out,
	// but a replay that was confirmed is a replay. done says of each whether it took place; a row that left its table, and
	// a letter that was closed, hold their chain no more. A replay that was neither confirmed nor rejected still waits.
	Answer(ctx context.Context, answers []Answer) (done []bool, err error)

	// Expire empties letters that were closed longer than keep ago (0: never), removes emptied ones whose events the slot
	// can not send any more, forgets requests answered longer than keep ago, and texts that no row refers to: at most about
	// limit of each. It says how many rows changed; it is called now and then, and again while that is not 0. The
	// audit has an entry for the letters emptied by one call, about row 0. (Two statements
	// here: texts are removed alone.)
	Expire(ctx context.Context, keep time.Duration, limit int) (changed int, err error)
}

// LeaseSize is how many row numbers a Lease takes: the increment of cdc_relay.row_number.
const LeaseSize = 1000

// LastDest is the Dest of a cursor behind all destinations of its unit. Digests are ordered as signed numbers.
const LastDest uint64 = 1<<63 - 1

// Row is an event as the tables of the siding hold it: all that is needed to publish it after its outbox row is gone.
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

// Run is the beginning of a chain. Blocked says that an open dead letter of the chain holds it (followers: hold): nothing
// of it may go.
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
	// Of Backoff and Dead. No Reason: the row was not refused, what it says of its last refusal stays.
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

// RequestKind is what an operator asked for.
type RequestKind = dlq.Kind

// The kinds of requests.
const (
	Replay     = dlq.Replay
	Discard    = dlq.Discard
	Redact     = dlq.Redact
	Retry      = dlq.Retry
	DeadLetter = dlq.Bury
	Purge      = dlq.Purge
)

// Request is a row of cdc_relay.request that waits.
type Request struct {
	ID   int64
	Kind RequestKind
	Row  *Row // nil: it is not there any more, or not in a state that allows this
	Open bool // Row is a letter that is open: with followers: hold it is counted for its chain
	// Of Replay, instead of where the letter was going: nil parts are left as they are.
	Route outbox.Route
}

// Answer is the end of a request. Of a replay Outcome is what the broker said; of the others it is ignored.
type Answer struct {
	Request Request
	Outcome sink.Outcome
}

// ErrFenced says that a newer leader has raised the epoch: nothing was read or changed, and nothing may be any more.
var ErrFenced = errors.New("fenced by a newer leader")

// Refused is a statement that the database refused: it did nothing.
type Refused struct {
	Row *Row // the one that is at fault when that is known, else nil
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

// ErrorSize is the most that is kept of the words of a refusal, and of a destination's name.
const ErrorSize = 500

// Scope is what a chain is, by delivery.ordering.
type Scope uint8

// The scopes.
const (
	PerKey  Scope = iota // key, pipelined: the events of a key and unit; an event without a key is a chain of its own
	PerUnit              // commit: all events of a unit
	Free                 // none: each event is a chain of its own
)

// Chain is the chain of an event in the tables, and whether it is counted (Row.Ordered). Line.Chain is 0 where it is not.
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
