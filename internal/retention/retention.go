// Package retention deletes rows of the outbox tables that were delivered, some time after that.
// Only the leader does, one small transaction after the other, and behind everything else.
//
// It goes by the sent set (package sent) and not by the tables: a part of the set whose time has
// come names the rows that may be deleted, and goes with them. So each row is looked at once, by
// the index on its transaction, and rows that were not delivered are never looked at. See
// pass.go for the statement, and for why it deletes nothing else.
package retention

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Config is the configuration of a Retention.
type Config struct {
	Pool  *pgxpool.Pool
	Slot  string
	Epoch int64 // of this term: no row is deleted once the slot has another one

	Tables []sent.Table
	Delete bool          // rows are deleted; else the sent set alone is kept small
	Keep   time.Duration // how long a row stays after its delivery

	Settled func() pglogrepl.LSN // up to where every event of the slot is settled
	Deleted func(rows int)       // rows were deleted, and that is committed
	Work    func(atWork bool)    // around each transaction
	Log     *zap.Logger
}

// Retention deletes for one term, in one goroutine.
type Retention struct {
	cfg            Config
	loggedWarnings map[string]bool         // texts of warnings that were logged and still hold
	conn           *pgx.Conn               // of the passes alone: the pool has few; nil: none yet
	lookedChunk    chunkParts              // the last chunk of rows that tidySent has looked at
	lookedPurged   chunkParts              // likewise of purged dead letters
	unsent         map[string]*unsentCount // by table, as schema.name
	lastLook       look                    // the last look
	// the last look that the slot is past; zero: not known yet
	pastLook look

	mu       sync.Mutex
	snapshot Snapshot
	counted  map[string]int64 // the last result of countUnsent; see Unsent
	gaps     []int64          // see OpenGaps
	seenAt   time.Time        // when both were read
}

// New makes a Retention; it starts nothing.
func New(cfg Config) *Retention {
	return &Retention{cfg: cfg, loggedWarnings: map[string]bool{}, unsent: map[string]*unsentCount{}}
}

// Snapshot is the state of retention for status and metrics.
type Snapshot struct {
	LastPass time.Time // when the last complete pass ended; zero: none yet
	// since when the oldest row that may be deleted waits for that, as far as it is known; zero:
	// none does
	Overdue time.Time
	// another slot of the same tables, or a record of one, has not delivered what is old enough
	// here; "": none
	HeldBy string
	Error  string // why the last pass was not complete; "": it was
}

// Unsent is how many rows of each table, as schema.name, are not known to be sent, at most 10,000.
// A table that is missing was not counted; nil: none was yet.
func (r *Retention) Unsent() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted
}

// OpenGaps are the accepted gaps whose rows may never have been sent; nil: not known yet.
func (r *Retention) OpenGaps() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}

// CountedAt is when Unsent and OpenGaps were read; zero: not yet.
func (r *Retention) CountedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seenAt
}

// Deletes reports whether rows are deleted.
func (r *Retention) Deletes() bool { return r.cfg.Delete }

// Snapshot may be called at any time.
func (r *Retention) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot
}

// firstPass is how long a new leader does more urgent things first. maxBackoff bounds the pause
// after passes that failed.
const (
	firstPass  = 5 * time.Second
	maxBackoff = 5 * time.Minute
)

// passEvery is the time from the end of a pass to the beginning of the next one: short next to the
// age of what is deleted, so that the tables hold little more than they have to.
func passEvery(keep time.Duration) time.Duration {
	return min(max(keep/20, 5*time.Second), time.Hour)
}

// Run works until ctx is done, and returns nil then. Whatever fails is tried again later: delivery
// does not depend on it. Only a newer leader, an *event.Stop, ends it.
func (r *Retention) Run(ctx context.Context) error {
	look := &task{name: "find out what is settled", do: r.lookAtEnd, every: tidyEvery / 5}
	works := []*task{look, {name: "tidy the sent set", do: r.tidySent, every: tidyEvery}, {name: "count the unsent rows", do: r.countUnsent, every: tidyEvery}}
	if r.cfg.Delete {
		every := passEvery(r.cfg.Keep)
		look.every = min(look.every, every/5)
		works = append(works, &task{name: "delete delivered rows", do: r.runPass, every: every})
	}
	defer r.closeConn()
	next := time.Now()
	for _, w := range works[1:] {
		w.next = next.Add(firstPass)
	}
	for {
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		for _, w := range works {
			err := w.runIfDue(ctx, r.cfg.Log)
			if fenced := (*event.Stop)(nil); errors.As(err, &fenced) && ctx.Err() == nil {
				return fenced
			}
		}
		next = slices.MinFunc(works, func(a, b *task) int { return a.next.Compare(b.next) }).next
	}
}

// task is something that is done again and again.
type task struct {
	name   string
	do     func(context.Context) error
	every  time.Duration
	next   time.Time
	pause  time.Duration // after the last failure; 0: there was none
	failed string        // the last error that was logged
}

// runIfDue does the task if its time has come. A task that fails does not delay the others.
func (w *task) runIfDue(ctx context.Context, log *zap.Logger) error {
	if time.Now().Before(w.next) {
		return nil
	}
	err := w.do(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // whatever the error, the term is over
	}
	if err == nil {
		w.next, w.pause, w.failed = time.Now().Add(w.every), 0, ""
		return nil
	}
	if w.failed != err.Error() {
		w.failed = err.Error()
		log.Warn("cannot "+w.name+": it is tried again, and delivery goes on", zap.Error(err))
	}
	w.pause = min(max(2*w.pause, firstPass), maxBackoff)
	w.next = time.Now().Add(w.pause)
	return err
}
