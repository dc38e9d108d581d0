// The configuration of a Table, the interface to the line, and the hooks that report.

package retry

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Line is what the retry table needs of the line; *relay.Line is it. None of its methods blocks,
// except Load.
type Line interface {
	// Settled tells that the rows of these events are committed. The Deferred are no longer valid.
	Settled(deferred []*relay.Deferred)
	// Offer gives rows to their lanes. Rows of an ordering group keep their order.
	Offer(rows []*relay.Fed)
	// NotNow tells that no row of the ordering group may be fed at present.
	NotNow(lane int, group, exchangeOrTopic uint64)
	// Uncount tells that a counted row has left the tables, or no longer blocks its ordering group,
	// without a confirm in the lane.
	Uncount(lane int, group, exchangeOrTopic uint64)
	// Load counts rows that were in the tables before. It waits until the lane of their event is
	// known; its only error is that of ctx.
	Load(ctx context.Context, ev *event.Event, rows int) error
	// Paused reports whether the destination or its exchange or topic is paused; with Dest 0,
	// whether the exchange or topic is.
	Paused(at sink.Place) bool
	// Forget tells that no row is left that could probe the paused destination (with Dest 0: the
	// paused exchange or topic).
	Forget(at sink.Place)
	// Resumed delivers after a pause ended; several ends may be one signal.
	Resumed() <-chan struct{}
	// ConfirmedSince reports whether something of that destination is known to have been confirmed
	// after that time.
	ConfirmedSince(dest uint64, at time.Time) bool
	// Group is the ordering group of the event; 0: it has none.
	Group(ev *event.Event, exchangeOrTopic uint64) uint64
}

// Router is the part of a sink.Sink that knows where events belong.
type Router interface {
	Place(ev *event.Event) (p sink.Place, ok bool)
	Route(ev *event.Event) event.Route
}

// Config is the configuration of a Table. Zero values of MaxAttempts, Backoff, MaxBackoff,
// RoundBytes, BudgetBytes and Log take the defaults.
type Config struct {
	Slot        string // for the error when fenced
	Epoch       int64  // likewise
	Incarnation int64  // of the slot: part of the name of its rows
	Store       store.Store
	Sink        Router
	Scope       store.Scope // by delivery.ordering

	Block       bool          // a dead letter blocks the later events of its ordering group
	MaxAttempts int           // of an event that is itself at fault, transiently; 20
	Backoff     time.Duration // 1 s
	MaxBackoff  time.Duration // 10 min
	// events of a refusing destination become dead letters after it; 0: never
	DestinationMaxAge time.Duration

	// Stats counts rows, for Snapshot; nil: nothing is counted. It is called from time to time.
	Stats func(ctx context.Context, limit int) (store.Stats, error)

	// RoundBytes (2 MiB) bounds the rows of one Defer; a larger row goes alone. BudgetBytes (8 MiB)
	// bounds the rows that are read and whose result is not committed; one larger row may exceed
	// it. The simulation makes both small.
	RoundBytes, BudgetBytes int64

	Hooks Hooks
	Log   *zap.Logger
	// Traceparent is what an event's message carries, for the log; nil: the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// Jitter draws a duration between 0 and its argument; nil: at random. The simulation draws it
	// from its seed.
	Jitter func(time.Duration) time.Duration
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
	Queued      int   // events whose rows are not committed yet
	QueuedBytes int64 // of those
	InFlight    int   // rows that were read, and whose result is not committed yet
	Refused     []RefusedRow
	RefusedAll  int // how many refused rows there are; Refused lists the first of them
	Stats       store.Stats
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
