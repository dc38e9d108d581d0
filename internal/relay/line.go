package relay

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Ordering is the promise about the order in which events are published.
type Ordering uint8

// The orderings of delivery.ordering.
const (
	// Key: an event is sent after the earlier one of its key was confirmed.
	Key Ordering = iota
	// Pipelined: commit order through each lane, without that wait; only a rejected event can be overtaken, by the others
	// of its call: those of other keys, and those of its own that were on their way when it was rejected.
	Pipelined
	// Commit is Pipelined over all keys: the sink is configured with one lane. The line itself treats both alike.
	Commit
	// None promises nothing. The line does what it does for Pipelined.
	None
)

// Config is what a Line is made of. Zero values of Window, WindowBytes, Retry and Log take the defaults.
type Config struct {
	Ordering    Ordering
	Window      int           // events in the line at most; 10,000
	WindowBytes int64         // bytes held for them at most, one larger event on top; 16 MiB
	Start       pglogrepl.LSN // the slot's confirmed_flush_lsn: the first watermark
	Sink        sink.Sink
	Hooks       Hooks
	Log         *zap.Logger
	Retry       Backoff // of a held lane; 1 s to 10 s
}

// Hooks tell what happens; nil ones are left out. They run on the lanes' goroutines, several at a time, and must be quick.
// Events handed to them are valid until they return.
type Hooks struct {
	// Confirmed: the broker took responsibility for these events, all of one call; at is when that was learned. The
	// watermark may already cover them.
	Confirmed func(lane int, events []*outbox.Event, at time.Time)
	// Rejected: an event was refused for the attempt-th time (from 1), or cannot be sent at all (once).
	Rejected func(ev *outbox.Event, f *sink.Fault, attempt int)
	// Unavailable: a call failed, with so many of its events in doubt; err is what Publish returned.
	Unavailable func(lane, unknown int, err error)
}

// Line is the way of the events from the reader to the sink, and of the watermark back. Its state survives the sessions of
// the replication connection: what was admitted once is not admitted again when the server sends it again.
type Line struct {
	cfg     Config
	log     *zap.Logger
	window  *window
	tracker *tracker
	board   *board

	mu     sync.Mutex
	lanes  []*lane     // written by the reader under mu, read by it without
	launch func(*lane) // starts a lane that is created while Run runs; nil outside Run

	waiting atomic.Int64 // commit time, Unix nanoseconds, of the event that the reader waits with; 0: it waits with none. Written by the reader

	stream // the reader's
}

// New makes a line. It starts nothing.
func New(cfg Config) *Line {
	cfg.Window = cmp.Or(cfg.Window, 10_000)
	cfg.WindowBytes = cmp.Or(cfg.WindowBytes, 16<<20)
	cfg.Retry.Min = cmp.Or(cfg.Retry.Min, time.Second)
	cfg.Retry.Max = max(cmp.Or(cfg.Retry.Max, 10*time.Second), cfg.Retry.Min)
	cfg.Log = cmp.Or(cfg.Log, zap.NewNop())
	return &Line{
		cfg:     cfg,
		log:     cfg.Log,
		window:  newWindow(cfg.Window, cfg.WindowBytes),
		tracker: newTracker(cfg.Start),
		board:   newBoard(),
	}
}

// Run runs the lanes until ctx is done, and returns nil when each of them has returned from its Publish. Lanes are created as
// Sink.Lane names them, before or while Run runs. What is unsettled then stays so.
func (l *Line) Run(ctx context.Context) error {
	var running sync.WaitGroup
	launch := func(ln *lane) { running.Go(func() { ln.run(ctx) }) }
	l.mu.Lock()
	l.launch = launch
	for _, ln := range l.lanes {
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

// lane is the reader's look at lane n; it is created at first sight, with those before it.
func (l *Line) lane(n int) *lane {
	if n < len(l.lanes) {
		return l.lanes[n]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.lanes) <= n {
		ln := newLane(len(l.lanes), l)
		l.lanes = append(l.lanes, ln)
		if l.launch != nil {
			l.launch(ln)
		}
	}
	return l.lanes[n]
}

// Watermark is the position that may be reported as flushed now.
func (l *Line) Watermark() outbox.Watermark { return l.tracker.watermark() }

// Moved delivers after the watermark moved; several moves may be one signal.
func (l *Line) Moved() <-chan struct{} { return l.tracker.moved }

// Unsettled is the number of events in the line.
func (l *Line) Unsettled() int {
	n, _, _ := l.window.size()
	return n
}

// WaitSettled returns nil once no event is in the line, with the watermark where that puts it, else ctx's error. A reader that
// still runs may admit the next one right after.
func (l *Line) WaitSettled(ctx context.Context) error {
	l.mu.Lock()
	for _, ln := range l.lanes {
		ln.signal() // should the reader have returned without waking a lane that it had filled
	}
	l.mu.Unlock()
	select {
	case <-l.window.whenEmpty():
		return nil
	case <-ctx.Done():
		if l.Unsettled() == 0 { // both were ready
			return nil
		}
		return ctx.Err()
	}
}
