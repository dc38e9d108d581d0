// What the writer and the feeder are made of, and what they tell.

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

// Line is what the retry table needs of the line; *relay.Line is it. Its methods do not block, but
// for Load.
type Line interface {
	// Settled: the rows of these are committed. The Deferred are not valid any more.
	Settled(deferred []*relay.Deferred)
	// Offer gives rows to their lanes, those of an ordering group in this order.
	Offer(rows []*relay.Fed)
	// NotNow: nothing of the ordering group may be fed at present.
	NotNow(lane int, group, exchangeOrTopic uint64)
	// Uncount: a row that is counted has left the tables, or holds its ordering group no more,
	// without a confirm in the lane.
	Uncount(lane int, group, exchangeOrTopic uint64)
	// Load counts rows that were there before, until ctx is done.
	Load(ctx context.Context, ev *event.Event, rows int) error
	// Paused reports whether the destination or its exchange or topic is paused; with Dest 0,
	// whether the exchange or topic is.
	Paused(at sink.Place) bool
	// Forget: of the destination, or with Dest 0 the exchange or topic, that is paused no row is
	// left to find out with whether it accepts.
	Forget(at sink.Place)
	// PausedDestsChanged delivers after a destination or exchange or topic was opened; several may
	// be one signal.
	PausedDestsChanged() <-chan struct{}
	// ConfirmedSince reports whether something of that destination is known to have been confirmed
	// after that time.
	ConfirmedSince(dest uint64, at time.Time) bool
	// Ordering group is what the event is kept in order with; 0: nothing.
	Group(ev *event.Event, exchangeOrTopic uint64) uint64
}

// Router is the part of a sink.Sink that knows where events belong.
type Router interface {
	Place(ev *event.Event) (p sink.Place, ok bool)
	Route(ev *event.Event) event.Route
}

// Config is what a Retry table is made of. Zero values of MaxAttempts, Backoff, MaxBackoff,
// RoundBytes, BudgetBytes and Log take the defaults.
type Config struct {
	Slot        string // for the error of being fenced
	Epoch       int64  // likewise
	Incarnation int64  // of the slot: part of the name of its rows
	Store       store.Store
	Sink        Router
	Scope       store.Scope // by delivery.ordering

	Block       bool          // a dead letter holds the later events of its ordering group
	MaxAttempts int           // of an event that is itself at fault, transiently; 20
	Backoff     time.Duration // 1 s
	MaxBackoff  time.Duration // 10 min
	// events of a refusing destination become dead letters after it; 0: never
	DestinationMaxAge time.Duration

	// Stats is ReadStats, for Snapshot; nil: that is not told. It is asked now and then.
	Stats func(ctx context.Context, limit int) (store.Stats, error)

	// RoundBytes bounds the rows of one Defer, 2 MiB, and BudgetBytes those that are read and whose
	// end is not committed, 8 MiB; one larger row goes alone, or on top. The simulation makes them
	// small.
	RoundBytes, BudgetBytes int64

	Hooks Hooks
	Log   *zap.Logger
	// Traceparent is what an event's message carries, for the log; nil: the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// Jitter draws a duration between 0 and its argument; nil: at random. The simulation draws it
	// from its seed.
	Jitter func(time.Duration) time.Duration
}

// Hooks tell what happens; nil ones are left out. They run on the goroutines of writer and feeder,
// and must be quick.
type Hooks struct {
	// rows were committed in the retry table: new ones, and such as say of a new refusal
	Deferred func(rows int)
	Dead     func(rows int) // rows were committed in, or moved to, the dead letters
	// Buried: each event of Dead, with the reason, "" when an operator said so, and how often it
	// was sent of what counts. It is valid until the hook returns.
	DeadLettered func(ev *event.Event, reason sink.Reason, attempts int)
	Exhausted    func(rows int) // those among Dead whose attempts were spent
	Retried      func(rows int) // rows of the retry table were sent, and confirmed or refused
	// rows and dead letters were refused and nothing was written of it: they are sent again, or
	// asked for again
	Failed func(rows int)

	// Each of these goroutines tells that it begins something, and before it waits for something to
	// do that it is at rest. What it begins is bounded: a statement by its timeout, on our side
	// too. One that tells nothing for minutes is stuck.
	Writer, Feeder, Stats func(atWork bool)
}

// tell tells one of those.
func tell(hook func(atWork bool), atWork bool) {
	if hook != nil {
		hook(atWork)
	}
}

// Snapshot is what the retry table has in its hands; its parts are not of exactly one moment.
type Snapshot struct {
	Queued      int   // events whose rows are not committed yet
	QueuedBytes int64 // of those
	InFlight    int   // rows that were read, and whose end is not committed yet
	Refused     []RefusedRow
	RefusedAll  int // Refused names the first of these
	Stats       store.Stats
}

// RefusedRow is a row that the database refuses. It is tried again, and holds back the later ones
// of its ordering group.
type RefusedRow struct {
	Position event.Position
	ID       string // its first 200 bytes
	Err      string
	Since    time.Time
	Behind   int // rows that it holds back
}

// call calls a hook, if there is one and something to tell.
func call(hook func(int), n int) {
	if hook != nil && n > 0 {
		hook(n)
	}
}
