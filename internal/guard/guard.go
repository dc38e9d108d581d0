// Package guard is the disk guard: while the broker is away and the slot keeps too much WAL, the
// line's events are deferred into the retry table, so that the slot moves. It is off unless
// configured.
package guard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Limits are when the guard begins and how much it may defer; without a guard they are zero.
type Limits struct {
	DeferAt  int64 // bytes of WAL; 0: Percent counts
	Percent  int   // of max_slot_wal_keep_size
	MaxBytes int64 // of the relay's own tables
}

// IsSet reports whether there is a guard.
func (l Limits) IsSet() bool { return l.MaxBytes > 0 }

// At is how much WAL the slot may keep until the guard begins; keep is max_slot_wal_keep_size in
// bytes, below 0 without a limit. A percentage of no limit is an error that a configuration cannot
// show.
func (l Limits) At(keep int64) (int64, error) {
	switch {
	case l.Percent == 0:
		return l.DeferAt, nil
	case keep < 0:
		return 0, &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: fmt.Sprintf("guard.defer_at is %d%% of max_slot_wal_keep_size, which is -1: the server sets no limit", l.Percent),
			Fix:  "set guard.defer_at to a size such as 2GiB, or ALTER SYSTEM SET max_slot_wal_keep_size",
		}
	}
	return keep / 100 * int64(l.Percent), nil
}

// Config is the configuration of a Guard.
type Config struct {
	// MaxBytes bounds the relay's own tables with their indexes: past it nothing more is deferred.
	// See space for what counts.
	MaxBytes int64
	// Patience is how long nothing may be confirmed while the sink says that it is up. It is longer
	// than the sink takes to blame a destination.
	Patience time.Duration

	Line Line
	Up   func() bool // the sink's connections
	// Measure asks the database. It is called at most once a second while nothing is confirmed,
	// and rarely otherwise.
	Measure func(ctx context.Context) (Disk, error)
	// Count is what the rows of the relay's own tables need. It is called at most once a minute,
	// while the tables' files have half of MaxBytes.
	Count func(ctx context.Context) (bytes int64, err error)
	Log   *zap.Logger
}

// Line is what the guard needs of the line of lanes.
type Line interface {
	Guard(on bool)
	Flow() Flow
}

// Flow is what passed the lanes, and what waits there.
type Flow struct {
	Confirmed     int64 // events, in all
	Deferred      int64 // events, by the guard, in all
	DeferredBytes int64 // about what their rows take on disk
	Waiting       int   // events that were read and are not settled
	WaitingBytes  int64 // about what their rows would take
}

// Disk is what the database says.
type Disk struct {
	Retained int64 // WAL that the slot keeps
	DeferAt  int64 // WAL from which on events are deferred
	Own      int64 // size of the relay's own tables, with indexes and TOAST
}

// Guard decides about the disk guard of one term.
type Guard struct {
	cfg      Config
	decision decision

	disk        Disk      // the last answer of Config.Measure
	space       space     // how much of Config.MaxBytes is used
	measuredAt  time.Time // when Config.Measure was called last
	failingText string    // the error text that was logged last; "" after a success

	mu       sync.Mutex
	snapshot Snapshot // as of the last look
}

// Snapshot is the state of the guard for status and metrics.
type Snapshot struct {
	Active   bool // events are deferred, or were until a moment ago: it tries the broker
	Full     bool // the broker is away, and the relay's tables have no room for what is in flight
	Deferred int  // events that the guard has deferred in this term

	Known bool  // Left is
	Left  int64 // bytes that it may still defer
}

// New makes a guard. It starts nothing.
func New(cfg Config) *Guard {
	return &Guard{cfg: cfg, decision: decision{patience: cfg.Patience, tryAfter: minWait}, space: space{max: cfg.MaxBytes}}
}

const (
	lookEvery    = time.Second            // between two looks at the line while the guard is off
	guardedEvery = 100 * time.Millisecond // likewise, in every other state
	measureEvery = time.Second            // between two measurements while a decision needs them
	// likewise on healthy days, for the metric of what is left
	healthyEvery = 10 * time.Minute
)

// Run looks at the line and decides again and again, until ctx is done.
func (g *Guard) Run(ctx context.Context) error {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		g.lookOnce(ctx, time.Now())
		every := lookEvery
		if g.decision.state != off {
			every = guardedEvery
		}
		timer.Reset(every)
	}
}

// lookOnce decides once, and switches the line's guard on or off.
func (g *Guard) lookOnce(ctx context.Context, now time.Time) {
	flow := g.cfg.Line.Flow()
	in := input{now: now, up: g.cfg.Up(), confirmed: flow.Confirmed, waiting: flow.Waiting > 0}
	before := g.decision.state
	if g.decision.asksDisk(&in) {
		g.measure(ctx, now, flow, measureEvery)
		in.disk = g.diskState(flow)
	} else {
		g.measure(ctx, now, flow, healthyEvery)
	}
	if g.decision.step(&in); g.decision.state != before {
		g.cfg.Line.Guard(g.decision.state == on)
		g.logChange(before, flow)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.snapshot = Snapshot{Active: g.decision.state == on || g.decision.state == trying, Full: g.decision.state == full, Deferred: int(flow.Deferred)}
	if g.space.known {
		g.snapshot.Known, g.snapshot.Left = true, g.space.bytesLeft(flow)
	}
}

// measure asks the database, unless it was asked less than every ago. After an error the last
// answer stays. What was deferred since is counted on top of it, so max_bytes holds without the
// database.
func (g *Guard) measure(ctx context.Context, now time.Time, flow Flow, every time.Duration) {
	if !g.measuredAt.IsZero() && now.Sub(g.measuredAt) < every {
		return
	}
	g.measuredAt = now
	disk, err := g.cfg.Measure(ctx)
	if err == nil {
		g.disk = disk
		g.space.noteFiles(disk.Own, flow, g.decision.state == off)
		if g.space.needsCount(now, g.decision.state) {
			var rows int64
			rows, err = g.cfg.Count(ctx)
			g.space.noteRows(now, rows, flow, err)
		}
	}
	if err == nil {
		g.failingText = ""
	} else if text := err.Error(); ctx.Err() == nil && text != g.failingText {
		g.failingText = text
		g.cfg.Log.Warn("disk guard: cannot read how much of the disk is used", zap.Error(err))
	}
}

// diskState compares the last measurement, and what was deferred since, with the limits.
func (g *Guard) diskState(flow Flow) diskState {
	if !g.space.known {
		return diskState{}
	}
	used := g.space.usedBytes(flow)
	return diskState{
		tooMuch: g.disk.Retained >= g.disk.DeferAt,
		hasRoom: used < g.cfg.MaxBytes,
		hasMore: used < g.space.resumeBelow(),
	}
}

func (g *Guard) logChange(before state, flow Flow) {
	fields := []zap.Field{
		zap.Int64("retained_wal_bytes", g.disk.Retained), zap.Int64("own_tables_bytes", g.disk.Own), zap.Int64("in_flight_bytes", flow.WaitingBytes), zap.Int64("deferred", flow.Deferred),
	}
	switch {
	case g.decision.state == full:
		g.cfg.Log.Warn("disk guard: the relay's tables and what is in flight have reached guard.max_bytes: nothing more is deferred, and the slot keeps WAL until the broker is back", fields...)
	case g.decision.state == off:
		g.cfg.Log.Info("disk guard: the broker confirms again: what was deferred is delivered first, then events go directly", fields...)
	case g.decision.state == on && before != trying:
		g.cfg.Log.Warn("disk guard: the broker is away and the slot keeps too much WAL: events are deferred into the retry table", fields...)
	default: // it tries, or has tried in vain
		g.cfg.Log.Debug("disk guard: tries the broker", append(fields, zap.Bool("deferring", g.decision.state == on))...)
	}
}

// Snapshot may be called from anywhere.
func (g *Guard) Snapshot() Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snapshot
}

// RowOverhead is what a deferred event takes on disk next to itself, with its entries in the
// indexes.
const RowOverhead = 1024

// LeastMaxBytes is the smallest MaxBytes with which a guard can defer, in whole MiB. All that may
// be in flight counts as if it were deferred, see Guard.diskState, and a guard that was full goes
// on when a tenth is free: a quarter on top leaves room for both.
func LeastMaxBytes(inFlight int, inFlightBytes int64) int64 {
	const mib = 1 << 20
	need := inFlightBytes + int64(inFlight)*RowOverhead
	return (need + need/4 + mib - 1) / mib * mib
}
