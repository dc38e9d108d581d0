// Package session is one START_REPLICATION to its end: the reader, the reporter, the flush limit,
// the checks while it runs, and the stop.
package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Shared is what the sessions of one process have in common: it outlives each of them.
type Shared struct {
	Cfg    *source.Config
	Pool   *pgxpool.Pool
	Status *slot.Status

	Segment  uint64          // size in bytes of a WAL file, when the newest session began
	warned   bool            // of a message with our prefix that is not transactional; the reader's
	WarnedOf map[string]bool // what the relay will stop at, by its text; the monitor's
	// position of the server at the last check that found publication and tables in order; 0: none
	LastGood atomic.Uint64
}

// SetGood records that publication and tables were in order when view was read.
func (s *Shared) SetGood(view *slot.View) {
	s.LastGood.Store(uint64(view.Current))
}

// Good is LastGood as a position.
func (s *Shared) Good() pglogrepl.LSN { return pglogrepl.LSN(s.LastGood.Load()) }

// Session is one START_REPLICATION to its end. The reader owns reads of conn and the decoder, the
// reporter owns writes; the flush limit, the monitor and the watches for silence and for the
// server's shutdown use the pool. Run owns them all but the last, and closes conn.
type Session struct {
	*Shared
	*ShutdownWatch
	t     *Term
	conn  net.Conn
	front *pgproto3.Frontend
	pid   uint32       // of our walsender
	sent  schema.Sends // what the publication sends, as it is remembered
	wal   uint64       // the end of the server's WAL when the session began

	again lastTransaction // the reader's

	// admitted is the number of events of the current transaction that the line has admitted. It
	// belongs to the reader, and to finish after the reader has ended.
	admitted int

	failover bool // the slot is a failover slot: standbys must have what is reported as settled
	// awaited is the position at which the reader wakes the reporter, once; 0: none
	awaited atomic.Uint64
	onNamed atomic.Uint64    // the last such position that the named standbys have
	wait    slot.StandbyWait // the monitor's

	Received atomic.Uint64 // highest position received: a commit's end or a keepalive's
	frames   atomic.Uint64 // odd while the reader works on one, even while it waits in Receive
	stopping atomic.Bool   // the reader returns at the next boundary of transactions
	cutAt    atomic.Bool   // it returns at once, wherever it is
	inTx     atomic.Bool
	readDone atomic.Bool // the reader has returned
	final    atomic.Bool // the flush limit is raised for any watermark, at once

	replyNow chan struct{} // the server asked for a report
	kick     chan struct{} // something the reporter reports on may have changed
	raise    chan struct{} // the flush limit is too low

	coalescer *Coalescer // counts the bytes read
}

// New makes a session. watch has begun before START_REPLICATION; sent is what the publication
// sends, with every OID under which rows of our tables may come; from is the position that was
// requested; view is the slot's row before the first report.
func New(s *Shared, watch *ShutdownWatch, t *Term, h *pgconn.HijackedConn, pace *Coalescer, sent schema.Sends, from pglogrepl.LSN, view *slot.View) *Session {
	var again lastTransaction
	// what begins to commit there or later is sent
	if t.newest.commit >= max(view.ConfirmedFlush, from) {
		again = t.newest
		again.from = max(view.ConfirmedFlush, from)
	}
	return &Session{
		Shared: s, ShutdownWatch: watch, t: t, conn: h.Conn, front: h.Frontend, pid: source.BackendPID(h.CustomData), coalescer: pace,
		sent: sent, wal: uint64(view.Current), again: again, failover: view.Failover,
		replyNow: make(chan struct{}, 1), kick: make(chan struct{}, 1), raise: make(chan struct{}, 1),
	}
}

// ErrServerStopping ends a session, or the steps to one, because the server is shutting down.
var ErrServerStopping = errors.New("the server is shutting down")

var (
	errReadStopped = errors.New("reading stopped at a transaction boundary")
	errReadCut     = errors.New("reading stopped inside a transaction")
)

// signal wakes the one goroutine that waits on a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// ErrCleanStop says that a session ended as asked: what was read is settled and reported.
var ErrCleanStop = errors.New("stopped as asked")

// Run streams until the session ends, for whatever reason, and leaves nothing running but the watch
// for the server's shutdown, which began before it.
// ErrCleanStop: reading was done and everything read is settled and reported.
func (se *Session) Run(reading, draining context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	readCtx, cutReading := context.WithCancel(ctx)
	failed := make(chan error, 8)
	var all sync.WaitGroup
	readerDone := make(chan error, 1)
	start := func(run func(context.Context) error) {
		all.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	all.Go(func() {
		err := se.read(readCtx)
		se.readDone.Store(true)
		readerDone <- err
		if se.failover {
			se.readOn(ctx)
		}
	})
	start(se.report)
	start(se.keepFlushLimit)
	start(se.monitor)
	start(se.watchSilence)

	err := stopAmong(se.attend(reading, draining, readerDone, failed, cutReading), failed)

	cancel()
	cutReading()
	_ = se.conn.SetDeadline(time.Now()) //nolint:errcheck // a dead connection has ended its users already
	all.Wait()
	_ = se.conn.Close() // nothing is lost with it
	se.t.Line.Disconnected()
	return err
}

// stopAmong returns a Stop that occurred while attend was handling another end of the session, such
// as a signal. If there is none it returns err.
func stopAmong(err error, failed <-chan error) error {
	var stop *event.Stop
	for !errors.As(err, &stop) {
		select {
		case other := <-failed:
			if errors.As(other, &stop) {
				return other
			}
		default:
			return err
		}
	}
	return err
}

// attend waits for the first event that ends the session, and ends it accordingly.
func (se *Session) attend(reading, draining context.Context, readerDone <-chan error, failed <-chan error, cutReading func()) error {
	select {
	case <-reading.Done():
		se.Status.Enter(slot.Stopping, "finishing what was read")
		ctx, cancel := se.grace(draining)
		defer cancel()
		err := se.stopReading(ctx, readerDone, cutReading)
		return se.finish(ctx, err)
	case <-se.shutdown:
		return se.releaseSlot(readerDone)
	case err := <-failed:
		return err
	case <-se.t.done:
		if se.t.err != nil {
			return se.t.err
		}
		return errors.New("the lanes ended")
	case err := <-readerDone:
		var stop *event.Stop
		// What was read before is delivered and reported, so that the next start, after the mapping
		// was corrected or with the missing configuration, has less to repeat.
		if errors.As(err, &stop) && (stop.Code == event.ExitMapping || stop.Reason == schema.NotConfigured) {
			ctx, cancel := se.grace(draining)
			defer cancel()
			return se.unlessHidden(draining, se.finish(ctx, err))
		}
		return err
	}
}

// unlessHidden returns the Stop for an altered publication if there is one: a column that the
// publication hides looks in the stream like a dropped one. Otherwise it returns err.
func (se *Session) unlessHidden(ctx context.Context, err error) error {
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitMapping {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	rec, asked := slot.ReadRecord(ctx, se.Pool, se.Cfg.Slot)
	if asked != nil || rec == nil {
		return err
	}
	_, asked = slot.CheckPublication(ctx, se.Pool, se.Cfg, rec)
	if errors.As(asked, &stop) && stop.Reason == "publication" {
		return stop
	}
	return err
}

// The end of a session: reading stops, what was read is settled within the grace period (drain),
// and the server acknowledges the last report, so that a clean stop sends nothing twice.

// grace returns the time limit of a stop: delivery.shutdown_grace, or less if the server is
// shutting down too (I10).
func (se *Session) grace(draining context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(draining, se.Cfg.Grace)
	go func() {
		select {
		case <-se.shutdown:
			source.Sleep(ctx, shutdownPatience)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stopReading lets the reader come to the end of its transaction for half the grace, or until
// draining is done, then cuts it.
func (se *Session) stopReading(draining context.Context, readerDone <-chan error, cutReading func()) error {
	se.stopping.Store(true)
	se.interruptIdle()
	half := time.NewTimer(se.Cfg.Grace / 2)
	defer half.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-readerDone:
			return err
		case <-tick.C:
			se.interruptIdle()
		case <-half.C:
			return se.cutReader(readerDone, cutReading)
		case <-draining.Done():
			return se.cutReader(readerDone, cutReading)
		}
	}
}

// readOn reads, and forgets, what the server sends after the reader has returned: with a failover
// slot the last watermark is reported only once the stream has passed the position that was read
// after its raise. What comes is given to nobody, so it stays above the watermark.
func (se *Session) readOn(ctx context.Context) {
	for {
		msg, err := se.front.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Reset the deadline first, then look: Run does it the other way round.
			if err = se.conn.SetReadDeadline(time.Time{}); err == nil && ctx.Err() == nil {
				continue
			}
		}
		if err != nil || ctx.Err() != nil {
			return // finish waits no longer than it would
		}
		if data, ok := msg.(*pgproto3.CopyData); ok {
			se.forget(data.Data)
		}
	}
}

// forget notes how far the stream is, by a keepalive or the end of a transaction.
func (se *Session) forget(data []byte) {
	const inXLog, endOfCommit = 1 + 24, 1 + 1 + 8 // two positions and a time; flags and a position
	switch {
	case len(data) == 1+17 && data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		se.advance(pglogrepl.LSN(binary.BigEndian.Uint64(data[1:])))
		if data[17] != 0 {
			signal(se.replyNow)
		}
	case len(data) >= inXLog+endOfCommit+8 && data[0] == pglogrepl.XLogDataByteID && data[inXLog] == 'C':
		se.advance(pglogrepl.LSN(binary.BigEndian.Uint64(data[inXLog+endOfCommit:])))
	}
}

func (se *Session) cutReader(readerDone <-chan error, cutReading func()) error {
	se.cutAt.Store(true)
	cutReading()
	_ = se.conn.SetReadDeadline(time.Now()) //nolint:errcheck // a dead connection ends the reader too
	return <-readerDone
}

// interruptIdle wakes a reader that waits for a next transaction. A reader inside a transaction
// goes on: if the deadline interrupts it anyway, it removes the deadline and reads on.
func (se *Session) interruptIdle() {
	if !se.inTx.Load() {
		_ = se.conn.SetReadDeadline(time.Now()) //nolint:errcheck // a dead connection ends the reader too
	}
}

// finish drains the lanes, reports the last watermark and has the server acknowledge it. Only then
// may the flush limit go down, and only then is the stop a clean one. readErr is why the reader
// returned; if it is a Stop, it is returned.
func (se *Session) finish(draining context.Context, readErr error) error {
	se.t.Line.Stopping()
	settled := se.Settle(draining)
	if err := se.laneError(); err != nil {
		return err
	}
	if err := se.reportFinally(draining); err != nil {
		se.Cfg.Log.Warn("the last report was not acknowledged: what it covered is sent again", zap.Error(err))
	} else if settled == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := LowerFlushLimit(ctx, se.Pool, se.Cfg, se.t, se.pid, se.Good()); err != nil {
			se.Cfg.Log.Warn("failed to lower the flush limit", zap.Error(err))
		}
	}
	var stop *event.Stop
	if errors.As(readErr, &stop) {
		return readErr
	}
	if errors.Is(readErr, errReadCut) {
		se.Cfg.Log.Warn("stopped inside a transaction: its events are sent again at the next start", zap.Int("events", se.admitted))
	}
	if settled != nil {
		return GraceOver(se.t.Line.Unsettled())
	}
	return ErrCleanStop
}

// Settle waits until nothing is unsettled, or the lanes have ended, which settle nothing more.
func (se *Session) Settle(draining context.Context) error {
	ctx, cancel := context.WithCancel(draining)
	defer cancel()
	go func() {
		select {
		case <-se.t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return se.t.Line.WaitSettled(ctx)
}

// laneError returns why the lanes have ended, for example because of a newer leader; nil while they
// run.
func (se *Session) laneError() error {
	select {
	case <-se.t.done:
		return se.t.err
	default:
		return nil
	}
}

// reportFinally raises the flush limit for the last watermark and waits until the pool sees it in
// the slot: some seconds at most, and only briefly once draining is done, or for a standby that is
// waited for already. Writing to the socket is
// not enough: a close with unread data behind it can discard the report.
func (se *Session) reportFinally(draining context.Context) error {
	patience := 4 * time.Second
	if draining.Err() != nil || len(se.Status.Snapshot().WaitingForStandby) > 0 {
		patience = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	se.final.Store(true)
	want := se.t.Line.Watermark().LSN
	for {
		signal(se.kick)
		view, err := slot.ReadActive(ctx, se.Pool, se.Cfg, se.pid)
		if err != nil {
			return err
		}
		if view.ConfirmedFlush >= want {
			return nil
		}
		if !source.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("slot %q is at %s, not yet at %s: %w", se.Cfg.Slot, view.ConfirmedFlush, want, ctx.Err())
		}
	}
}

// releaseSlot lets a server shut down, which otherwise waits until we have reported its last
// record: at once if nothing is unsettled, otherwise after some seconds (I10). The flush limit can
// no longer be raised, so only what it already allows is reported.
func (se *Session) releaseSlot(readerDone <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		_ = se.t.Line.WaitSettled(ctx) //nolint:errcheck // settled or not, the server is let go
	}()
	select {
	case <-settled:
	case err := <-readerDone:
		se.Cfg.Log.Debug("the server ended the stream", zap.Error(err))
		cancel()
		<-settled
	}
	se.flushReport()
	se.Cfg.Log.Info("the server is shutting down: released the slot", zap.Int("unsettled", se.t.Line.Unsettled()))
	return ErrServerStopping
}

// shutdownPatience is how long a shutdown of the server is delayed for events that wait for a dead
// broker.
const shutdownPatience = 5 * time.Second

// flushReport gives the reporter a moment to write a last report.
func (se *Session) flushReport() {
	signal(se.kick)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for want := se.t.Line.Watermark().LSN; uint64(want) > se.t.Reported.Load() && uint64(want) <= se.t.FlushLimit.Load(); {
		if !source.Sleep(ctx, time.Millisecond) {
			return
		}
	}
}

// GraceOver is the Stop when the grace period ended before every event was settled.
func GraceOver(unsettled int) *event.Stop {
	return &event.Stop{
		Code: event.ExitCut, Reason: "cut",
		What: fmt.Sprintf("stopped with %d events not settled; they are sent again at the next start", unsettled),
		Fix:  "raise delivery.shutdown_grace to give the broker more time",
	}
}
