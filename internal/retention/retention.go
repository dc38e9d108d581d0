// Package retention deletes delivered rows from the outbox tables, some time after their delivery,
// so that the tables stay small. Only the leader deletes, in one small transaction after the other,
// and behind everything else.
//
// It goes by the sent set (package sent) and not by the tables: a part of the set that is old
// enough names the rows that may be deleted, and is deleted with them. So each row is looked at
// once, by the index on its transaction, and rows that were not delivered are never looked at. See
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

// Retention deletes for one term, in one goroutine. Snapshot, Unsent and the other questions may
// come from any goroutine.
type Retention struct {
	cfg            Config
	loggedWarnings map[string]bool         // texts of warnings that were logged and still hold
	conn           *pgx.Conn               // the connection of all passes; nil: none yet
	tidiedChunk    chunkParts              // where dropOrphans goes on with chunks of the sent set
	tidiedPurged   chunkParts              // where dropOrphans goes on with purged dead letters
	unsent         map[string]*unsentCount // by table, as schema.name
	lastLook       look                    // the newest look at the end of the WAL
	// settledLook is the newest look up to whose position the slot has settled everything:
	// transactions that had ended by then are settled. Its end is 0 while there is none.
	settledLook look

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
	// Overdue is since when the oldest row that may be deleted waits for its deletion, as far as it
	// is known; zero means that no row waits
	Overdue time.Time
	// HeldBy is another slot of the same tables, or a record of one, that has not delivered rows
	// which are old enough to be deleted here; "" means that none keeps rows
	HeldBy string
	Error  string // why the last pass was not complete; "": it was
}

// Unsent is how many rows of each table, as schema.name, are not known to be sent, at most 10,000.
// A table that is missing in the map was not counted; nil means that no table was counted yet.
func (r *Retention) Unsent() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted
}

// OpenGaps are the accepted gaps whose rows may never have been sent; nil means that they are not
// known yet.
func (r *Retention) OpenGaps() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}

// CountedAt is when Unsent and OpenGaps were read; zero means that they were not read yet.
func (r *Retention) CountedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seenAt
}

// Deletes reports whether rows are deleted, or the sent set alone is kept small.
func (r *Retention) Deletes() bool { return r.cfg.Delete }

// Snapshot reads the state of retention. It may be called at any time.
func (r *Retention) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot
}

const (
	// firstPass is how long after its beginning a new leader does its first work here, because it
	// has more urgent things to do. It is also the shortest pause after a failure.
	firstPass = 5 * time.Second
	// maxBackoff bounds the pause after failures.
	maxBackoff = 5 * time.Minute
)

// passEvery is the time from the end of a pass to the beginning of the next one. It is short next
// to keep, so that the tables hold little more than they have to.
func passEvery(keep time.Duration) time.Duration {
	return min(max(keep/20, 5*time.Second), time.Hour)
}

// Run works until ctx is done, and returns nil then. What fails is tried again later, because
// delivery does not depend on it. Only a newer leader ends Run before that, with an *event.Stop.
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

// task is a part of Run that is done again and again.
type task struct {
	name   string
	do     func(context.Context) error
	every  time.Duration
	next   time.Time
	pause  time.Duration // after the last failure; 0: there was none
	failed string        // the last error that was logged
}

// runIfDue does the task if its time has come. It logs an error once while the error stays the
// same, and returns it. A task that fails does not delay the other tasks.
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
