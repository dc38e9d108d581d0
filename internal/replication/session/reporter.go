// The reporter: it alone writes to the replication connection, and it alone decides what may be
// reported as flushed. The server discards everything below that position.

package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

const (
	// the longest time between two reports, even if nothing moved, or the reader no longer reads
	// the server's keepalives
	reportEvery = time.Second
	// the shortest time between two writes: otherwise report and keepalive trigger each other
	reportGap = 10 * time.Millisecond
	// a write that takes longer than this ends the session
	writeBound = 5 * time.Second
)

// runReporter is the reporter: it owns writes to the connection, and it is the one place that
// decides what may be flushed.
//
// Invariants: the flush position is a watermark of the line, at or below the durable flush limit,
// and its rows are recorded in the sent set. It is never lower than before. It is never zero, which
// a client library would turn into the write position, confirming what was merely received.
func (se *Session) runReporter(ctx context.Context) error {
	r := reporter{Session: se, flush: event.Watermark{LSN: pglogrepl.LSN(se.term.Reported.Load())}, replyAskedAt: time.Now()}
	tick := time.NewTicker(min(reportEvery, se.Cfg.WALSenderTimeout/4))
	defer tick.Stop()
	for {
		timer := false
		moved := se.term.Line.Moved()
		if r.candidate.LSN > r.flush.LSN {
			// a raise is under way, and nothing new can be reported until it is done; lookAgain
			// signals its end
			moved = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			timer = true
			if se.Cfg.Hooks.Beat != nil {
				se.Cfg.Hooks.Beat()
			}
		case <-se.replyNow:
			timer = true
		case <-moved:
		case <-se.lookAgain:
		}
		if err := r.reportOnce(ctx, timer); err != nil {
			return err
		}
	}
}

type reporter struct {
	*Session
	flush event.Watermark // the newest watermark that may be reported
	// candidate is the watermark the flush limit was last raised for. Under load the current
	// watermark is always above a flush limit that has just become durable; the candidate is not.
	candidate    event.Watermark
	lastSent     event.Watermark // what was reported last
	raiseAskedAt time.Time       // when a raise of the flush limit was last asked for
	writtenAt    time.Time       // when a report was last written
	replyAskedAt time.Time       // when the server was last asked for a reply
	buf          []byte          // of a report, reused
}

// reportOnce moves the flush position as far as the flush limit allows, asks for a higher flush
// limit, and writes a report when one is due.
func (r *reporter) reportOnce(ctx context.Context, timer bool) error {
	now := r.term.Line.Watermark()
	limit, passed := r.reportLimit()
	for _, m := range []event.Watermark{r.candidate, now} {
		if passed && m.LSN <= limit && r.term.isRecorded(m) && m.LSN >= r.flush.LSN {
			r.flush = m
		}
	}
	r.wantFlushLimit(now, limit)
	// Progress without events of ours is reported when the timer fires, because nothing waits for
	// it.
	if !timer && (r.flush == r.lastSent || r.flush.Own == r.lastSent.Own && !r.finalReport.Load()) {
		return nil
	}
	if gap := reportGap - time.Since(r.writtenAt); gap > 0 {
		if !source.Sleep(ctx, gap) {
			return nil // the session is over
		}
	}
	return r.writeReport()
}

// reportLimit is the position up to which may be reported: the flush limit. With a failover slot it
// is what was settled when the limit was raised last, and passed is false until the named standbys
// have that, too.
func (se *Session) reportLimit() (limit pglogrepl.LSN, passed bool) {
	if !se.failover {
		return pglogrepl.LSN(se.term.FlushLimit.Load()), true
	}
	proof := se.term.onStandbys.Load()
	if proof == nil {
		return 0, false
	}
	return pglogrepl.LSN(proof.settled), max(se.Received.Load(), se.onNamed.Load()) >= proof.passed
}

// wantFlushLimit asks for a higher flush limit: at once for a watermark that covers new events of
// ours, rarely for any other. A raise is itself a commit, so the next keepalive is above it again.
// If the watermark has already moved above the limit, even an event below the limit cannot be
// reported before the next raise: only watermarks may be reported.
func (r *reporter) wantFlushLimit(now event.Watermark, limit pglogrepl.LSN) {
	// or one is under way, and will be above the candidate
	if now.LSN <= limit && r.term.isRecorded(now) || r.candidate.LSN > r.flush.LSN {
		return
	}
	if now.Own > r.flush.Own || r.finalReport.Load() || r.isIdleRaiseDue(limit, now.LSN) {
		r.candidate, r.raiseAskedAt = now, time.Now()
		signal(r.raise)
	}
}

// isIdleRaiseDue reports whether a raise without events of ours is due: once at the beginning of a
// session, per idleRaiseBytes, and each minute in which more was written than the previous raise
// and the server itself write. Otherwise each raise would cause the next one for ever: an idle
// server would checkpoint again and again, begin files of WAL with archive_timeout, and keep them
// for every other slot (TestRaiseIsNotAnsweredByTheFileThatItBegan).
func (r *reporter) isIdleRaiseDue(limit, now pglogrepl.LSN) bool {
	return r.raiseAskedAt.IsZero() || source.WALBeyond(r.Segment, limit, now) && (now-limit >= idleRaiseBytes || time.Since(r.raiseAskedAt) >= idleRaiseEvery)
}

const (
	idleRaiseEvery = time.Minute
	idleRaiseBytes = 16 << 20
)

// postgresEpoch is 2000-01-01 UTC in microseconds of the Unix epoch.
const postgresEpoch = 946684800 * 1_000_000

// writeReport sends a standby status update:
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-STANDBY-STATUS-UPDATE
func (r *reporter) writeReport() error {
	flush := r.flush.LSN
	if flush == 0 || uint64(flush) > r.term.FlushLimit.Load() || uint64(flush) < r.term.Reported.Load() {
		return fmt.Errorf("report %s: outside of what may be reported (%s to %s)", flush,
			pglogrepl.LSN(r.term.Reported.Load()), pglogrepl.LSN(r.term.FlushLimit.Load()))
	}
	// the server would later skip the WAL that it writes up to that position
	if wal := max(r.walEnd, r.Received.Load()); uint64(flush) > wal {
		return fmt.Errorf("report %s: beyond the server's WAL, which is known up to %s", flush, pglogrepl.LSN(wal))
	}
	now := time.Now()
	written := max(pglogrepl.LSN(r.Received.Load()), flush)
	b := append(r.buf[:0], 'd', 0, 0, 0, 4+34, 'r')
	b = binary.BigEndian.AppendUint64(b, uint64(written))
	b = binary.BigEndian.AppendUint64(b, uint64(flush))
	b = binary.BigEndian.AppendUint64(b, uint64(flush)) // applied
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()-postgresEpoch))
	reply := byte(0)
	if now.Sub(r.replyAskedAt) >= r.Cfg.WALSenderTimeout/3 {
		reply, r.replyAskedAt = 1, now
	}
	r.buf = append(b, reply)
	// Reported rises before the bytes are written: if the write fails, the server may have received
	// them.
	r.term.Reported.Store(uint64(flush))
	if err := r.conn.SetWriteDeadline(now.Add(writeBound)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := r.conn.Write(r.buf); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	r.lastSent, r.writtenAt = r.flush, now
	r.coalescer.nap.endNap() // every second at least: the reader sleeps no longer
	return nil
}

// The flush limit: no position is reported above a number that was first made durable, so a slot
// that was dropped and re-created, or moved, is noticed.

// RaiseFlushLimit makes it durable that positions up to the current end of the WAL may be reported.
// It changes nothing if we are fenced (a Stop) or do not hold the slot (slot.ErrNotActive). good
// (0: not known) is written in the same statement.
//
// In the same transaction it records which rows were sent (package sent). The watermark is read
// first: the entries of all events below it are there by then (sent.Recorder.Add), so a position
// up to that watermark loses none of them.
//
// And it keeps the watermark itself, settled_lsn, as it was before the statement was sent: a server
// that has it also has each row by which an event below it was settled (see onStandbys).
func RaiseFlushLimit(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term, pid uint32, good pglogrepl.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var flushLimit pglogrepl.LSN
	mark := t.Line.Watermark() // before the entries are taken, and the statement is sent
	settled := uint64(mark.LSN)
	entries, left := t.Sent.TakeEntries()
	batch := &pgx.Batch{} // one transaction
	for _, p := range sent.Parts(entries) {
		batch.Queue(sent.InsertSQL, c.Slot, t.Epoch, p.Relation, p.Chunk, int64(p.First), int64(p.Last), p.Digests)
	}
	batch.Queue(`WITH fence AS (SELECT incarnation FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
		UPDATE cdc_relay.progress p SET max_flush_lsn = pg_current_wal_insert_lsn(), reported = $3, good = greatest(p.good, $5), at = now(),
			settled_lsn = CASE WHEN p.settled_of = fence.incarnation THEN greatest(p.settled_lsn, $6) ELSE $6 END, settled_of = fence.incarnation
		FROM fence WHERE p.slot = $1
			AND EXISTS (SELECT FROM pg_replication_slots r WHERE r.slot_name = $1 AND r.active_pid = $4)
		RETURNING p.max_flush_lsn`, c.Slot, t.Epoch, pglogrepl.LSN(t.Reported.Load()), int32(pid), good, pglogrepl.LSN(settled)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&flushLimit) })
	err := pool.SendBatch(ctx, batch).Close()
	if err != nil {
		t.Sent.ReturnEntries(entries, left)
	}
	if source.IsNoRows(err) {
		return whyNotRaised(ctx, pool, c, t)
	}
	if err != nil {
		return fmt.Errorf("raise flush limit: %w", err)
	}
	if left > 0 {
		c.Log.Warn("delivered rows were not recorded as sent, because the database did not answer for too long: retention leaves them",
			zap.Int("rows", left), zap.String("slot", c.Slot))
	}
	t.Sent.MarkWritten(entries)
	t.recorded.Store(max(t.recorded.Load(), uint64(mark.Own)))
	t.FlushLimit.Store(max(t.FlushLimit.Load(), uint64(flushLimit)))
	t.Proven.Store(settled)
	return nil
}

// whyNotRaised is the error after a raise that has changed nothing: fenced, or the slot was lost.
func whyNotRaised(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term) error {
	rec, err := slot.ReadRecord(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	if rec == nil || rec.Epoch != t.Epoch {
		return FencedStop(c, t.Epoch)
	}
	return slot.ErrNotActive
}

// LowerFlushLimit is the last statement of a clean stop: from now on a slot above that position has
// been re-created or moved. The final report was acknowledged before, and nothing is reported
// after.
func LowerFlushLimit(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term, pid uint32, good pglogrepl.LSN) error {
	at := pglogrepl.LSN(t.Reported.Load())
	_, err := source.Execute(ctx, pool, "lower flush limit", `WITH fence AS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
		UPDATE cdc_relay.progress p SET max_flush_lsn = $3, reported = $3, good = greatest(p.good, $5), at = now() FROM fence WHERE p.slot = $1
			AND EXISTS (SELECT FROM pg_replication_slots r WHERE r.slot_name = $1 AND r.active_pid = $4)`,
		c.Slot, t.Epoch, at, int32(pid), good)
	return err
}

// keepFlushLimit raises the flush limit when the reporter asks, in a goroutine of its own: reports
// continue while a raise waits for the database. A raise whose answer is lost leaves the table
// above what we know, which is the safe side.
func (se *Session) keepFlushLimit(ctx context.Context) error {
	// A new term asks its first questions in the session of the pool that there is: it would be
	// another one's worth of catalogs to raise the limit beside them.
	if !source.Sleep(ctx, flushLimitFirst) {
		return nil
	}
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-se.raise:
			// The raise was requested twice while one was under way. After the last report of a
			// clean stop the flush limit goes down, and nothing may put it up again.
			if limit, _ := se.reportLimit(); se.term.isRecorded(se.term.Line.Watermark()) && se.term.Line.Watermark().LSN <= limit {
				continue
			}
		case <-se.term.Sent.Full():
			// At the end the reporter asks for each raise: see above.
			if se.finalReport.Load() {
				continue
			}
		}
		source.CallAtWork(se.Cfg.Hooks.FlushLimit, true)
		err := RaiseFlushLimit(ctx, se.Pool, se.Cfg, se.term, se.pid, se.Good())
		if err == nil && se.failover {
			err = se.awaitStandbys(ctx)
		}
		source.CallAtWork(se.Cfg.Hooks.FlushLimit, false)
		var stop *event.Stop
		switch {
		case err == nil:
			said = ""
			signal(se.lookAgain)
			if se.failover {
				se.askStandbys(ctx)
			}
		case errors.As(err, &stop) || errors.Is(err, slot.ErrNotActive):
			return err
		default:
			if source.IsGoingAway(err) {
				signal(se.suspect)
			} else if err.Error() != said {
				said = err.Error()
				se.Cfg.Log.Warn("cannot advance the slot: failed to raise the flush limit", zap.Error(err))
			}
			signal(se.raise) // again
		}
		gap := flushLimitGap
		if err != nil && !se.finalReport.Load() {
			gap = flushLimitRetry
		}
		if (err != nil || !se.finalReport.Load()) && !source.Sleep(ctx, gap) {
			return nil
		}
	}
}

// awaitStandbys reads the end of the WAL after a raise was committed, and notes it as the position
// that the named standbys must have before the reporter reports what was settled at the raise. See
// onStandbys. Where no standby is named the reporter waits for nothing.
func (se *Session) awaitStandbys(ctx context.Context) error {
	var end pglogrepl.LSN
	err := source.Ask(ctx, se.Pool, "read the end of the WAL after a raise of the flush limit", `SELECT CASE coalesce(current_setting('synchronized_standby_slots', true), '')
		WHEN '' THEN '0/0' ELSE pg_current_wal_flush_lsn() END`).Scan(&end)
	if err != nil {
		return err
	}
	se.term.onStandbys.Store(&onStandbys{settled: se.term.Proven.Load(), passed: uint64(end)})
	se.awaited.Store(uint64(end)) // the reader may have passed it already: the reporter looks next
	se.coalescer.nap.endNap()     // it may be a keepalive that says so
	return nil
}

// askStandbys asks, while the stream is not there yet, whether the named standbys have the position
// that is awaited: by their slots, as the walsender does. A stream that catches up comes to the end
// of the WAL last of all, and until then nothing would be reported: a restart would send all of it
// again. It is asked once a second, and not at all when the stream is there within one.
func (se *Session) askStandbys(ctx context.Context) {
	at := se.awaited.Load()
	for se.Received.Load() < at && source.Sleep(ctx, askStandbysEvery) && se.awaited.Load() == at {
		source.CallAtWork(se.Cfg.Hooks.FlushLimit, true)
		view, err := slot.ReadStandbys(ctx, se.Pool)
		source.CallAtWork(se.Cfg.Hooks.FlushLimit, false)
		switch {
		case err != nil: // the next statement of the session meets it, too
		case view.AllHave(pglogrepl.LSN(at)): // or none is named any more
			se.noteStandbysAt(at)
			return
		}
	}
}

const askStandbysEvery = time.Second

// noteStandbysAt is told positions that the named standbys have. It wakes the reporter at the one
// that is awaited.
func (se *Session) noteStandbysAt(to uint64) {
	if at := se.awaited.Load(); at != 0 && to >= at && se.awaited.CompareAndSwap(at, 0) {
		se.onNamed.Store(at)
		signal(se.lookAgain)
	}
}

// flushLimitGap is the least time between two raises: each is a commit in the source database.
const flushLimitGap = 100 * time.Millisecond

// flushLimitFirst is the time before the first raise of a session.
const flushLimitFirst = 30 * time.Millisecond

// flushLimitRetry is the pause after a raise that failed: each try may be a connection to a server
// that has none left. A clean stop may have to wait for it.
const flushLimitRetry = time.Second

// Term is the time under one epoch of ours: its line, and how far it may report and did. It
// outlives a lost session when nobody else led in between.
type Term struct {
	Epoch       int64
	Raised      string // Record.Raised of the epoch
	incarnation int64  // of the slot that was read
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
	newest lastTransaction

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

// IsContinued reports whether nobody led, and the slot was neither re-created nor adopted, since
// the term began.
func (t *Term) IsContinued(rec *slot.Record) bool {
	return t.Epoch == rec.Epoch && t.Raised == rec.Raised && t.incarnation == rec.Incarnation
}

// NewTerm starts the lanes of a new line at start, under the epoch of rec. reported is the slot's
// position: start is higher when this process has settled more than the slot has kept.
func NewTerm(ctx context.Context, pool *pgxpool.Pool, c *source.Config, rec *slot.Record, start, reported pglogrepl.LSN) (*Term, error) {
	keys, recorder := rec.KeyHash(), sent.NewRecorder()
	c.Primary.MarkLeader(rec.Epoch)
	line, err := c.NewLine(ctx, source.Term{Start: start, Epoch: rec.Epoch, Incarnation: rec.Incarnation, SystemID: rec.SystemID, Pool: pool, Sent: recorder, Keys: keys})
	if err != nil {
		c.Primary.MarkLeader(0)
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Term{primary: c.Primary, Epoch: rec.Epoch, Raised: rec.Raised, incarnation: rec.Incarnation, Line: line, keys: keys, Sent: recorder, cancel: cancel, done: make(chan struct{})}
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

// EndTerm stops the lanes and waits for them. What is unsettled stays in the slot. A nil term has
// ended already.
func (t *Term) EndTerm() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
	t.primary.MarkLeader(0)
}

// FencedStop is the Stop of a leader that another one replaced.
func FencedStop(c *source.Config, epoch int64) *event.Stop {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "fenced",
		What: fmt.Sprintf("fenced: a newer leader of slot %q raised the epoch past %d", c.Slot, epoch),
		Fix:  "start this relay again: it becomes the standby",
	}
}
