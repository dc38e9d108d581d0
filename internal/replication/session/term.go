// The term: the time under one epoch of ours, with its line, its flush limit and what it reported.
// It outlives a lost session when nobody else led in between.

package session

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Term is the time under one epoch of ours: its line, and how far it may report and did.
type Term struct {
	Epoch       int64
	Raised      string // record.Raised, of the epoch
	incarnation int64  // of the slot that was read
	began       time.Time
	primary     *source.Primary
	Line        source.Line
	keys        *event.KeyHash

	// FlushLimit is durable in cdc_relay.progress before it is stored here, so the table is never
	// below it. Invariant: reported <= flush limit.
	FlushLimit atomic.Uint64
	// inherited is the flush limit when the term began: about how far former leaders have read.
	inherited pglogrepl.LSN
	// Reported is the slot's position when this term began, or the highest flush position this
	// process may have written to the slot since. Nobody else writes under this epoch, so the slot
	// is never above it.
	Reported atomic.Uint64

	// Proven is the term's start, or the watermark when the last raise of the flush limit was sent:
	// a database with our epoch and that flush limit also has every row by which the events below
	// were settled.
	Proven atomic.Uint64

	// Sent has the rows that were confirmed and are not yet recorded in the sent set; nil in tests.
	Sent *sent.Recorder
	// recorded is the end of the newest transaction with events of ours whose rows that were sent
	// are durably recorded: no watermark with a later one is reported. It only rises.
	recorded atomic.Uint64

	// onStandbys is what a session with a failover slot may report; nil: nothing yet.
	onStandbys atomic.Pointer[onStandbys]

	// the last transaction of which anything was read: the reader's, and between sessions nobody's
	newest LastTransaction

	cancel context.CancelFunc
	done   chan struct{}
	err    error // of line.Run, valid after done
}

// onStandbys is how far everything is settled on the named standbys, too, once the session has
// received the WAL up to a position.
//
// With a failover slot a standby may take the server's place at any moment. Its copy of the slot is
// as far as ours, or less. What the slot does not send again must then be settled there, too.
//
// A raise of the flush limit writes settled. The events at or below it were settled by rows, and
// these were committed before the raise began. passed is the end of the WAL, read after the raise
// was committed. So the rows, settled and the flush limit all lie below passed.
//
// The walsender of a failover slot sends nothing that a standby of synchronized_standby_slots has
// not flushed. So each of them has all WAL below what was received. Their slots on the primary show
// the same (askStandbys). Once either has come to passed, settled may be reported, and any
// watermark below it.
//
// A standby may be named, or promoted, in between. The promoted server compares its slot with the
// settled that it has (slot.CheckUse): the slot is above it, and the promotion is not proven.
//
// Only reports wait for this: no event does, and it takes no room in the in-flight budget. Without
// a named standby passed is 0, so nothing is waited for, and no promotion is proven.
type onStandbys struct {
	settled, passed uint64
}

// Continues reports whether nobody led, and the slot was neither re-created nor adopted, since the
// term began.
func (t *Term) Continues(rec *slot.Record) bool {
	return t.Epoch == rec.Epoch && t.Raised == rec.Raised && t.incarnation == rec.Incarnation
}

// NewTerm starts the lanes of a new line at start, under the epoch of rec. reported is the slot's
// position: start is higher when this process has settled more than the slot has kept.
func NewTerm(ctx context.Context, pool *pgxpool.Pool, c *source.Config, rec *slot.Record, start, reported pglogrepl.LSN) (*Term, error) {
	keys, err := source.Keys(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	recorder := sent.NewRecorder()
	c.Primary.Lead(rec.Epoch)
	line, err := c.NewLine(ctx, source.Term{Start: start, Epoch: rec.Epoch, Incarnation: rec.Incarnation, SystemID: rec.SystemID, Pool: pool, Sent: recorder, Keys: keys})
	if err != nil {
		c.Primary.Lead(0)
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Term{primary: c.Primary, Epoch: rec.Epoch, Raised: rec.Raised, incarnation: rec.Incarnation, began: time.Now(), Line: line, keys: keys, Sent: recorder, cancel: cancel, done: make(chan struct{})}
	t.FlushLimit.Store(uint64(rec.FlushLimit))
	t.inherited = rec.FlushLimit
	t.Reported.Store(uint64(reported))
	t.Proven.Store(uint64(start)) // the epoch was raised after everything below was settled
	go func() {
		defer close(t.done)
		t.err = t.Line.Run(ctx)
	}()
	return t, nil
}

// isRecorded reports whether the rows of all events below a watermark that were sent are recorded.
func (t *Term) isRecorded(m event.Watermark) bool { return uint64(m.Own) <= t.recorded.Load() }

// End stops the lanes and waits for them. What is unsettled stays in the slot. A nil term has ended
// already.
func (t *Term) End() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
	t.primary.Lead(0)
}

// Fenced is the Stop of a leader that another one replaced.
func Fenced(c *source.Config, epoch int64) *event.Stop {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "fenced",
		What: fmt.Sprintf("fenced: a newer leader of slot %q raised the epoch past %d", c.Slot, epoch),
		Fix:  "start this relay again: it becomes the standby",
	}
}
