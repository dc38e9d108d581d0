// What a Step takes and what it returns.

package order

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Input is what has happened since the last Step. The machine keeps none of its slices.
type Input struct {
	Now time.Time
	// The outcomes of the call that the last Step asked for, and its error; nil: there was no call.
	Outcomes []sink.Outcome
	Err      error
	Probed   []Probed
	Written  []Written     // rows of deferred events are committed
	Finished []Result      // results that are committed
	Found    []Found       // what was found in the tables
	Arrived  inflight.List // new events, in the order of the stream
	Stopping bool          // no row may go any more, and nothing stays in memory behind rows
	Guarded  bool          // the disk guard is on: everything is deferred, nothing is sent or read
}

// Probed is the outcome of an event that was sent apart.
type Probed struct {
	Event   *inflight.Event
	Outcome sink.Outcome
}

// Written says that the row of a deferred event is committed.
type Written struct {
	RowGroup uint64 // the ordering group of the row in the table
	Position event.Position
	Ordered  bool
	Place    sink.Place
	Dead     bool
	DueIn    time.Duration
}

// AllLanes is the lane of what every lane is told.
const AllLanes = -1

// Found is one thing that was found in the tables: rows of an ordering group (the answer to a Want,
// or what a walk found), an operator's request about a row, something to send at once, or how far
// the table is known. The machine owns the rows until it gives them back with a Result.
type Found struct {
	Group, ExchangeOrTopic uint64

	Rows    []*inflight.Event // in commit order, without a gap, behind the Want's After
	More    bool              // the table has rows of the group behind these
	Blocked bool              // an open dead letter blocks the group (on_dead_letter: block)
	Failed  bool              // the rows cannot be read or placed now
	Walk    bool
	ReadAt  time.Time // of a walk: when its read began, or earlier

	Request *store.Request  // about a row: it needs the group at rest
	Replay  *inflight.Event // a dead letter that an operator replays, or the mirror's copy of one
	Changed bool            // somebody else has changed the group's rows or dead letters

	// Unsure: the exchange or topic may have rows of any group; the stream may repeat events up to
	// Repeated.
	Unsure   bool
	Repeated event.Position
	// WalkBegins: what a walk through the exchange or topic finds comes behind this. WalkEnds: it
	// is complete, every group with rows was found and handed over.
	WalkBegins, WalkEnds bool
}

// Actions is what to do now. It is valid until the next Step.
type Actions struct {
	Send      []*event.Event    // the next call, in order; empty: none
	Probe     []Probe           // to be sent apart
	Confirmed []*inflight.Event // new events that the broker has: they are settled
	Delivered []*inflight.Event // rows and replays that the broker has
	Rejected  []Rejection
	// rejected events of which no row is written: they are offered again
	NoRow   int
	Unknown int               // events of the last call that are in doubt
	Defer   []*inflight.Event // their rows are to be written, in this order
	Read    []Want
	Walk    []uint64 // exchanges and topics of which ordering groups were forgotten
	Finish  []Result
	Ended   bool      // a pause ended: other lanes should look
	Wake    time.Time // Step again then, if nothing arrives; zero: no need
}

// Probe is an event that is sent apart from the lane's calls, by sink.Prober. Suspect: it was
// rejected before for a fault of its own.
type Probe struct {
	Event   *inflight.Event
	Suspect bool
}

// Rejection is one rejection of an event.
type Rejection struct {
	Event   *inflight.Event
	Fault   *sink.Fault
	Attempt int // from 1
}

// Want asks for rows of an ordering group.
type Want struct {
	store.Want
	ExchangeOrTopic uint64
	// one row is enough: it finds out whether a paused destination accepts again
	Probe bool
}

// Result is what becomes of a row, or of an operator's request.
type Result struct {
	Event *inflight.Event // nil: a request about a row, which may be carried out
	// Returned: nothing is written, the row stays in the table as it is.
	Returned     bool
	store.Result                // what is written
	Request      *store.Request // Result is then empty; the outcome of a replay is in Event
}

func (a *Actions) reset() {
	clear(a.Confirmed)
	clear(a.Delivered)
	clear(a.Rejected)
	*a = Actions{
		Confirmed: a.Confirmed[:0], Delivered: a.Delivered[:0], Rejected: a.Rejected[:0],
		Probe: a.Probe[:0], Read: a.Read[:0], Walk: a.Walk[:0],
	}
}
