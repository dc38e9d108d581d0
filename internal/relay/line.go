// Package relay is the line between the replication stream and the sink: events go forward through
// ordered lanes, and one number, the watermark, comes back.
//
// One goroutine, the reader, calls Begin, Event, Commit, Keepalive and Disconnected in the order of
// the stream. Event copies the row into the arena of its lane, waits while the in-flight budget is
// full, and returns. Each lane has a goroutine and an order machine (package order). The goroutine
// gives the machine what has arrived, and does what the machine says: it publishes events, settles
// those that were confirmed, and gives those that may not be sent now to the RetryTable. The
// RetryTable writes them as rows, reads rows back when the machine asks for them, and commits what
// became of them. The tracker knows which transactions still have unsettled events, and therefore
// which position may be reported to the server.
//
//	reader ── Event ─▶ budget ─▶ lane ── Publish ─▶ sink
//	            │                │  ▲ └── Defer, Read, Finish ─────▶ Retry table
//	            │                │  └──── Found, Finished ◀────────────┤
//	            └──── tracker ◀──┴── Settle ◀─────────── Committed ◀───┘
//	                     └──▶ Watermark
//
// Ownership: the reader's fields of Line belong to the reader. A lane's fields, except its inbox,
// belong to the lane's goroutine. Budget, tracker and the registry of pauses have a mutex each, and
// call no other part of the line while they hold it.
package relay

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sent"
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

// Scope is what an ordering group is with this ordering.
func (o Ordering) Scope() event.Scope {
	switch o {
	case Commit:
		return event.PerExchangeOrTopic
	case None:
		return event.Free
	default:
		return event.PerKey
	}
}

// Config is the configuration of a Line. Zero values of MaxInFlight, MaxInFlightBytes, MaxGroups,
// MaxAttempts, Backoff, MaxBackoff and Log take the defaults.
type Config struct {
	Ordering         Ordering
	MaxInFlight      int           // the maximum of events in the line; 2,000
	MaxInFlightBytes int64         // the maximum of memory for them, plus one larger event; 16 MiB
	Start            pglogrepl.LSN // the slot's confirmed_flush_lsn: the first watermark
	Sink             sink.Sink
	RetryTable       RetryTable
	Sent             *sent.Recorder // takes the rows that were confirmed; nil: no row is recorded
	// MaxGroups is how many ordering groups with rows are known one by one; 0 means
	// order.MaxGroups. Tests make it small.
	MaxGroups   int
	Block       bool          // a dead letter blocks the later events of its ordering group
	MaxAttempts int           // of an event that is itself at fault, transiently; 20
	Backoff     time.Duration // after its first rejection; 1 s
	MaxBackoff  time.Duration // 10 min
	// DestinationMaxAge is for how long a destination may refuse an event before the event becomes
	// a dead letter; 0 means for ever.
	DestinationMaxAge time.Duration
	// OfDest means that only a confirm at the same destination (Kafka: partition) shows that a
	// rejected event is itself at fault. Without it a confirm anywhere in the event's exchange
	// does.
	OfDest bool
	// Guard means that a disk guard may call Line.Guard.
	Guard bool
	Hooks Hooks
	Log   *zap.Logger
	// Jitter draws a duration between 0 and its argument; nil means at random. The simulation draws
	// it from its seed.
	Jitter func(time.Duration) time.Duration
	// AfterStep is order.Config's: tests check the ordering groups there.
	AfterStep func(*order.Machine)
}

// Hooks report what happens, for the log and the metrics; a hook that is nil is not called. They
// run on the lanes' goroutines, several at a time, and must be quick. Events handed to them are
// valid until they return.
type Hooks struct {
	// Confirmed is called with new events, or with rows, replays and copies, for which the broker
	// has taken responsibility. at is when the lane took the answer. The watermark may already
	// cover the events.
	Confirmed func(lane int, events []*event.Event, at time.Time)
	// Published is called with each event of Confirmed alone, and with how often it was rejected
	// before.
	Published func(lane int, ev *event.Event, refusals int, at time.Time)
	// Rejected is called when an event was rejected for the attempt-th time (from 1), with the
	// attempts that its row remembers. A rejection behind an event that waits does not count.
	Rejected func(ev *event.Event, f *sink.Fault, attempt int)
	// Failed is called with the number of rejections after which no row was written: a new event is
	// offered again from memory, and a row of the retry table stays as it is.
	Failed func(events int)
	// Unavailable is called when a call failed and left this number of events in doubt; err is the
	// error of Publish.
	Unavailable func(lane, unknown int, err error)
}

// Line carries events from the reader to the sink, and the watermark back. Its state survives the
// sessions of the replication connection: an event that was admitted is not admitted again when the
// server sends it again.
type Line struct {
	cfg   Config
	log   *zap.Logger
	scope event.Scope
	// prober is nil if the sink has none: events that were rejected before then go with the others
	prober   sink.Prober
	budget   *inflight.Budget
	tracker  *inflight.Tracker
	pauses   *order.Pauses
	order    order.Config // of each lane's machine
	guarding *guarding    // nil: there is no disk guard

	mu     sync.Mutex
	lanes  atomic.Pointer[[]*lane] // written under mu
	launch func(*lane)             // starts a lane that is created while Run runs; nil outside Run
	// unsure has the exchanges and topics of which a new lane must be told that it does not know
	// all ordering groups; guarded by mu
	unsure map[uint64]order.Found

	// waiting is the commit time, in Unix nanoseconds, of the event with which the reader waits for
	// room or for its lane; 0 means that the reader does not wait. The reader writes it.
	waiting atomic.Int64

	stream // the reader's
}

// New makes a line. It starts nothing.
func New(cfg Config) *Line {
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, 2000)
	cfg.MaxInFlightBytes = cmp.Or(cfg.MaxInFlightBytes, 16<<20)
	cfg.MaxGroups = cmp.Or(cfg.MaxGroups, order.MaxGroups)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, 20)
	cfg.Backoff = cmp.Or(cfg.Backoff, time.Second)
	cfg.MaxBackoff = max(cmp.Or(cfg.MaxBackoff, 10*time.Minute), cfg.Backoff)
	cfg.Log = cmp.Or(cfg.Log, zap.NewNop())
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	l := &Line{
		cfg: cfg, log: cfg.Log,
		scope:   cfg.Ordering.Scope(),
		budget:  inflight.NewBudget(cfg.MaxInFlight, cfg.MaxInFlightBytes),
		tracker: inflight.NewTracker(cfg.Start),
		unsure:  map[uint64]order.Found{},
	}
	l.pauses = order.NewPauses(order.PausesConfig{OfDest: cfg.OfDest, MaxAge: cfg.DestinationMaxAge, MaxBackoff: cfg.MaxBackoff, Jitter: cfg.Jitter, Began: l.logPause, Ended: l.logPauseEnd})
	if cfg.Guard {
		l.guarding = &guarding{}
	}
	l.prober, _ = cfg.Sink.(sink.Prober)
	wait := waitTimes{cfg.Backoff, cfg.MaxBackoff, cfg.Jitter}
	l.order = order.Config{
		OneByOne: cfg.Ordering == Key, Apart: l.prober != nil, Block: cfg.Block, MaxAttempts: cfg.MaxAttempts,
		Spin: wait.afterFailedCall, Backoff: wait.afterRejection, Patience: wait.afterRefusedRow, Pauses: l.pauses, Room: order.NewGroupRoom(cfg.MaxGroups), AfterStep: cfg.AfterStep,
	}
	return l
}

// Run runs the lanes until ctx is done, and returns nil when each lane has returned from its
// Publish. A lane is created when Sink.Place first names it, before or while Run runs. Unsettled
// events stay unsettled when Run returns.
func (l *Line) Run(ctx context.Context) error {
	var running sync.WaitGroup
	launch := func(ln *lane) { running.Go(func() { ln.run(ctx) }) }
	l.mu.Lock()
	l.guarding.startCalls(ctx)
	l.launch = launch
	for _, ln := range l.allLanes() {
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

// laneOf returns lane n. If the lane does not exist yet, laneOf creates it and those with lower
// numbers.
func (l *Line) laneOf(n int) *lane {
	if lanes := l.allLanes(); n < len(lanes) {
		return lanes[n]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lanes := l.allLanes()
	for len(lanes) <= n {
		ln := newLane(len(lanes), l)
		ln.inbox.Guarded = l.guarding.isOn()
		for _, f := range l.unsure {
			ln.inbox.Found = append(ln.inbox.Found, f)
		}
		lanes = append(slices.Clip(lanes), ln)
		if l.launch != nil {
			l.launch(ln)
		}
	}
	l.lanes.Store(&lanes)
	return lanes[n]
}

// Watermark is the position that may be reported to the slot as flushed now.
func (l *Line) Watermark() event.Watermark { return l.tracker.Watermark() }

// Moved delivers after the watermark moved, so that the reporter reports. Several moves may be one
// signal.
func (l *Line) Moved() <-chan struct{} { return l.tracker.Moved() }

// Unsettled is the number of events in the line that are not settled.
func (l *Line) Unsettled() int {
	n, _ := l.budget.Size()
	return n
}

// IsFull reports whether the reader waits with an event, for room or for its lane.
func (l *Line) IsFull() bool { return l.waiting.Load() != 0 }

// WaitSettled returns nil once no event is in the line and the watermark covers all events, else
// the error of ctx. A clean stop waits with it after reading has ended; a reader that still runs
// may admit the next event right after.
func (l *Line) WaitSettled(ctx context.Context) error {
	for _, ln := range l.allLanes() {
		ln.wake() // in case the reader returned without waking a lane that it had filled
	}
	select {
	case <-l.budget.WhenEmpty():
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
	// Waiting is how many events were read and are not in the line yet, 0 or 1: the lane of the
	// event is not known, or the event waits for room
	Waiting int

	// OldestCommit is the commit time of the oldest transaction with an unsettled event, including
	// the event of Waiting; zero means that there is none
	OldestCommit time.Time

	// ConfirmedAbove is how many events above the watermark are settled: a crash now would repeat
	// those that are at the broker, and what is not reported yet
	ConfirmedAbove uint64

	Paused []sink.Paused // destinations that are paused, the longest first
	// WaitingGroups is how many ordering groups wait for rows of the retry table, as far as they
	// are known one by one
	WaitingGroups int
}

// Snapshot reads the state of the line. It is cheap enough to be called at each scrape. Its parts
// may be of slightly different moments.
func (l *Line) Snapshot() Snapshot {
	var s Snapshot
	s.Events, s.Bytes = l.budget.Size()
	s.Paused = l.pauses.List()
	s.WaitingGroups = l.order.Room.Waiting()
	s.ConfirmedAbove, s.OldestCommit = l.tracker.SettledAbove()
	if s.Events == 0 {
		s.OldestCommit = time.Time{}
	}
	if at := l.waiting.Load(); at != 0 {
		s.Waiting = 1
		// if it is set, an event in the line is of the same transaction or of an earlier one
		if s.OldestCommit.IsZero() {
			s.OldestCommit = time.Unix(0, at).UTC()
		}
	}
	return s
}

// waitTimes computes the waiting times of rejected events and failed calls.
type waitTimes struct {
	min, max time.Duration                     // Config.Backoff and Config.MaxBackoff
	jitter   func(time.Duration) time.Duration // Config.Jitter
}

// afterRejection is the wait after the attempt-th rejection (from 1). It is exponential with full
// jitter, so that many rows that were rejected at the same moment do not come back at the same
// moment. It is never 0, because 0 means that the row does not wait for a time.
func (w waitTimes) afterRejection(attempt int) time.Duration {
	top := w.max
	// 32 doublings are past any sensible maximum, and do not overflow
	if n := attempt - 1; n < 32 && w.min<<n < w.max {
		top = w.min << n
	}
	return max(w.jitter(top), time.Millisecond)
}

// afterRefusedRow is the wait of a row that its destination rejected, while the destination is not
// paused. No attempt is spent on it, so the wait grows with the row's age instead.
func (w waitTimes) afterRefusedRow(age time.Duration) time.Duration {
	return max(w.jitter(min(max(age, w.min), w.max)), time.Millisecond)
}

// logPause logs that a pause began; it is PausesConfig.Began.
func (l *Line) logPause(p sink.Paused) {
	fields := []zap.Field{zap.String("destination", p.Destination), zap.String("reason", string(p.Reason)), zap.String("fault", p.Text)}
	if p.Fix != "" {
		fields = append(fields, zap.String("fix", p.Fix))
	}
	l.log.Warn("destination paused: its events wait in the retry table, others go on", fields...)
}

// logPauseEnd logs that a pause ended; it is PausesConfig.Ended.
func (l *Line) logPauseEnd(p sink.Paused, forgotten bool, now time.Time) {
	if forgotten {
		l.log.Info("destination no longer paused: none of its events is left in the retry table", zap.String("destination", p.Destination))
		return
	}
	l.log.Info("destination accepts again", zap.String("destination", p.Destination), zap.Duration("paused", now.Sub(p.Since).Round(time.Millisecond)))
}

// afterFailedCall is the wait before the next call after several calls in a row failed at once;
// fails is 0 after the second of them. It prevents a busy loop over a sink that does not wait
// itself.
func (w waitTimes) afterFailedCall(fails int) time.Duration {
	d := minSpin << min(fails, 10)
	d = min(d, maxSpin)
	return d - d/5 + w.jitter(2*d/5)
}

const (
	minSpin = 50 * time.Millisecond
	maxSpin = time.Second
)
