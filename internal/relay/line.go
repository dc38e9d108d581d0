// Package relay is the line between the replication stream and the sink: events go forward through
// ordered lanes, and one number, the watermark, comes back.
//
// One goroutine, the reader, calls Begin, Event, Commit, Keepalive and Disconnected in the order of
// the stream. Event copies the row into the arena of its lane, waits while the in-flight budget is
// full, and returns. A goroutine per lane publishes what has arrived, waits for the outcomes,
// settles what was confirmed and repeats. An event that may not be sent now is given to the
// RetryTable. The RetryTable settles it once its row is committed, and offers it again later. The
// tracker knows which transactions still have unsettled events, and therefore which position may be
// reported to the server.
//
//	reader ── Event ─▶ budget ─▶ lane ── Publish ─▶ sink
//	            │                │  ▲ └─── Defer ────▶ Retry table
//	            │                │  └───── Offer ──────┤
//	            └──── tracker ◀──┴── settle ◀─ Settled ┘
//	                     └──▶ Watermark
//
// Ownership: the reader's fields of Line belong to the reader. A lane's fields, except its inbox,
// belong to the lane's goroutine. Budget, tracker and pauses have a mutex each, and call no other
// part of the line while they hold it.
package relay

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Ordering is the promise about the order in which events are published.
type Ordering uint8

// The orderings of delivery.ordering.
const (
	// Key: an event is sent after the earlier one of its key was confirmed.
	Key Ordering = iota
	// Pipelined: events go in commit order through each lane, without that wait. Only a rejected
	// event can be overtaken by others of its key: those that were in flight when it was rejected.
	Pipelined
	// Commit is Pipelined over all keys: the sink is configured with one lane, and an exchange or
	// topic is one ordering group.
	Commit
	// None promises nothing. It is Pipelined without ordering groups: nothing waits for a rejected
	// event.
	None
)

// Config is the configuration of a Line. Zero values of MaxInFlight, MaxInFlightBytes, MaxWaiting,
// Retry and Log take the defaults.
type Config struct {
	Ordering         Ordering
	MaxInFlight      int           // the maximum of events in the line; 10,000
	MaxInFlightBytes int64         // the maximum of memory for them, plus one larger event; 16 MiB
	Start            pglogrepl.LSN // the slot's confirmed_flush_lsn: the first watermark
	Sink             sink.Sink
	RetryTable       RetryTable
	MaxWaiting       int  // ordering groups counted one by one; 0: maxWaiting. Tests make it small
	Block            bool // a dead letter blocks the later events of its ordering group
	Hooks            Hooks
	Log              *zap.Logger
	Retry            Backoff // of an event that can be neither sent nor deferred; 1 s to 10 s
}

// Hooks report what happens; nil ones are skipped. They run on the lanes' goroutines, several at a
// time, and must be quick. Events handed to them are valid until they return.
type Hooks struct {
	// Confirmed: the broker took responsibility for these events, all of one call; at is when the
	// answer arrived. The watermark may already cover them.
	Confirmed func(lane int, events []*event.Event, at time.Time)
	// Published: each event of Confirmed again, alone, with how often it was rejected before.
	Published func(lane int, ev *event.Event, refusals int, at time.Time)
	// Rejected: an event was rejected for the attempt-th time (from 1) since it entered the line. A
	// rejection behind an event that waits does not count.
	Rejected func(ev *event.Event, f *sink.Fault, attempt int)
	// Failed: a rejected event was neither deferred nor dead-lettered. It is offered again from
	// memory.
	Failed func(events int)
	// Unavailable: a call failed with this number of events in doubt; err is the error of Publish.
	Unavailable func(lane, unknown int, err error)
}

// Line carries events from the reader to the sink, and the watermark back. Its state survives the
// sessions of the replication connection: an event that was admitted is not admitted again when the
// server sends it again.
type Line struct {
	cfg     Config
	log     *zap.Logger
	budget  *budget
	tracker *tracker
	pauses  *pauses
	prober  sink.Prober // the sink; nil: it cannot
	room    room

	stopping atomic.Bool // no ordering group is cut over after it is set

	mu     sync.Mutex
	lanes  atomic.Pointer[[]*lane] // written under mu
	launch func(*lane)             // starts a lane that is created while Run runs; nil outside Run

	// commit time, Unix nanoseconds, of the event that the reader waits with; 0: it waits with
	// none. Written by the reader
	waiting atomic.Int64

	stream // the reader's
}

// New makes a line. It starts nothing.
func New(cfg Config) *Line {
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, 10_000)
	cfg.MaxInFlightBytes = cmp.Or(cfg.MaxInFlightBytes, 16<<20)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, maxWaiting)
	cfg.Retry.Min = cmp.Or(cfg.Retry.Min, time.Second)
	cfg.Retry.Max = max(cmp.Or(cfg.Retry.Max, 10*time.Second), cfg.Retry.Min)
	cfg.Log = cmp.Or(cfg.Log, zap.NewNop())
	prober, _ := cfg.Sink.(sink.Prober)
	return &Line{
		cfg:     cfg,
		prober:  prober,
		log:     cfg.Log,
		budget:  newBudget(cfg.MaxInFlight, cfg.MaxInFlightBytes),
		tracker: newTracker(cfg.Start),
		pauses:  newPauses(cfg.Log),
		room:    room{limit: int64(cfg.MaxWaiting)},
	}
}

// Run runs the lanes until ctx is done, and returns nil when each lane has returned from its
// Publish. A lane is created when Sink.Place first names it, before or while Run runs. Unsettled
// events stay unsettled when Run returns.
func (l *Line) Run(ctx context.Context) error {
	var running sync.WaitGroup
	launch := func(ln *lane) { running.Go(func() { ln.run(ctx) }) }
	l.mu.Lock()
	l.launch = launch
	for _, ln := range l.all() {
		launch(ln)
	}
	l.mu.Unlock()

	<-ctx.Done()

	l.mu.Lock()
	l.launch = nil
	l.mu.Unlock()
	running.Wait()
	return nil
}

// all returns the existing lanes.
func (l *Line) all() []*lane {
	if lanes := l.lanes.Load(); lanes != nil {
		return *lanes
	}
	return nil
}

// lane returns lane n. If it does not exist yet, lane creates it and those with lower numbers.
func (l *Line) lane(n int) *lane {
	if lanes := l.all(); n < len(lanes) {
		return lanes[n]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lanes := l.all()
	for len(lanes) <= n {
		ln := newLane(len(lanes), l)
		lanes = append(slices.Clip(lanes), ln)
		if l.launch != nil {
			l.launch(ln)
		}
	}
	l.lanes.Store(&lanes)
	return lanes[n]
}

// Watermark is the position that may be reported as flushed now.
func (l *Line) Watermark() event.Watermark { return l.tracker.watermark() }

// Moved delivers after the watermark moved; several moves may be one signal.
func (l *Line) Moved() <-chan struct{} { return l.tracker.moved }

// Unsettled is the number of events in the line.
func (l *Line) Unsettled() int {
	n, _, _ := l.budget.size()
	return n
}

// WaitSettled returns nil once no event is in the line and the watermark covers all of them, else
// ctx's error. A reader that still runs may admit the next one right after.
func (l *Line) WaitSettled(ctx context.Context) error {
	for _, ln := range l.all() {
		ln.signal() // in case the reader returned without waking a lane that it had filled
	}
	select {
	case <-l.budget.whenEmpty():
		return nil
	case <-ctx.Done():
		if l.Unsettled() == 0 { // both channels were ready
			return nil
		}
		return ctx.Err()
	}
}

// Snapshot is the state of the line for status and metrics.
type Snapshot struct {
	Events int   // in the line, not settled
	Bytes  int64 // of those
	// events that were read and are not in the line yet, 0 or 1: the lane of the event is not
	// known, or the event waits for room
	Waiting int

	// commit time of the oldest transaction with an unsettled event, including the event of
	// Waiting; zero when there is none
	OldestCommit time.Time

	// events confirmed above the watermark: a crash now would repeat these, and what is not
	// reported yet
	ConfirmedAbove uint64

	Paused []Pause // destinations that are paused, the longest first
	// ordering groups that wait for rows of the retry table, without those counted with their
	// exchange or topic
	WaitingGroups int
}

// Snapshot is cheap enough to be called at each scrape. Its parts may be of slightly different
// moments.
func (l *Line) Snapshot() Snapshot {
	var s Snapshot
	s.Events, s.Bytes, _ = l.budget.size()
	s.Paused = l.pauses.list()
	s.WaitingGroups = int(l.room.taken.Load())
	l.tracker.snapshot(&s)
	if s.Events == 0 {
		s.OldestCommit = time.Time{}
	}
	if at := l.waiting.Load(); at != 0 {
		s.Waiting = 1
		// otherwise an event in the line is of the same transaction or of an earlier one
		if s.OldestCommit.IsZero() {
			s.OldestCommit = time.Unix(0, at).UTC()
		}
	}
	return s
}

func (t *tracker) snapshot(s *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.ConfirmedAbove = t.settled - t.covered
	if t.head != nil {
		s.OldestCommit = t.head.time
	}
}
