// The configuration of a Table, the interface to the line, and the hooks that report.

package retry

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Line is what the retry table needs of the line; *relay.Line is it. None of its methods blocks.
type Line interface {
	// Committed tells that the rows of these events are committed. The events are no longer valid.
	Committed(events []*inflight.Event)
	// Found gives what was found in the tables to a lane, or to all (order.AllLanes). Lanes that
	// come later are told what all are unsure about.
	Found(lane int, found []order.Found)
	// Finished gives committed results back to their lane.
	Finished(lane int, results []order.Result)
	// Pauses is the registry of paused destinations.
	Pauses() *order.Pauses
}

// Router is the part of a sink.Sink that knows where events belong.
type Router interface {
	Place(ev *event.Event) (p sink.Place, ok bool)
	Route(ev *event.Event) event.Route
}

// Config is the configuration of a Table. Zero values of RoundBytes, BudgetBytes and Log take
// the defaults.
type Config struct {
	Slot        string // for the error when fenced
	Epoch       int64  // likewise, and to tell replays that an earlier leader has begun
	Incarnation int64  // of the slot: part of the name of its rows
	Store       store.Store
	Sink        Router
	Scope       event.Scope // by delivery.ordering

	Block bool // a dead letter blocks the later events of its ordering group
	// events of a refusing destination become dead letters after it; 0: never
	DestinationMaxAge time.Duration

	// Stats counts rows, for Snapshot; nil: nothing is counted. It is called from time to time.
	Stats func(ctx context.Context, limit int) (store.Stats, error)

	// ReadRow reads the whole event of which a dead letter lacks values (Event.LeftOut) from its
	// outbox table. why: it cannot be had, until somebody changes something; an error may pass. It
	// may take minutes.
	ReadRow func(ctx context.Context, ev *event.Event) (whole *event.Event, why string, err error)

	// RoundBytes (2 MiB) bounds the rows of one Defer; a larger row goes alone. BudgetBytes (8 MiB)
	// bounds the rows that are read and whose result is not committed; one larger row may exceed
	// it. The simulation makes both small.
	RoundBytes, BudgetBytes int64

	Hooks Hooks
	Log   *zap.Logger
	// Traceparent is what an event's message carries, for the log; nil: the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
}

// Hooks report what happens; nil hooks are skipped. They run on the goroutines of the writer and
// the feeder, and must be quick.
type Hooks struct {
	// rows were committed in the retry table: new ones, and existing ones with a new rejection
	Deferred func(rows int)
	Dead     func(rows int) // rows were committed in, or moved to, the dead letters
	// DeadLettered: each event of Dead, with the reason ("" when an operator requested it) and its
	// attempts that count. The event is valid until the hook returns.
	DeadLettered func(ev *event.Event, reason sink.Reason, attempts int)
	Exhausted    func(rows int) // those among Dead whose attempts were spent
	Retried      func(rows int) // rows of the retry table were sent, and confirmed or refused
	// rows and dead letters were rejected and nothing was written: they are sent again, or
	// requested again
	Failed func(rows int)

	// Each of these goroutines calls its hook with true when it begins work, and with false before
	// it waits for work. All work is bounded: a statement by its timeout, on our side too. So a
	// goroutine that reports nothing for minutes is stuck.
	Writer, Feeder, Stats func(atWork bool)
}

// reportWork calls one of these hooks, if it is set.
func reportWork(hook func(atWork bool), atWork bool) {
	if hook != nil {
		hook(atWork)
	}
}

// Snapshot is the state of the retry table; its parts may be of slightly different moments.
type Snapshot struct {
	Queued     int // events whose rows are not committed yet
	InFlight   int // rows that were read, and whose result is not committed yet
	Refused    []RefusedRow
	RefusedAll int // how many refused rows there are; Refused lists the first of them
	Stats      store.Stats
}

// RefusedRow is a row that the database refuses. It is tried again, and the later rows of its
// ordering group wait behind it.
type RefusedRow struct {
	Position event.Position
	ID       string // its first 200 bytes
	Err      string
	Since    time.Time
	Behind   int // rows that wait behind it
}

// call calls a hook, if there is one and something to report.
func call(hook func(int), n int) {
	if hook != nil && n > 0 {
		hook(n)
	}
}
