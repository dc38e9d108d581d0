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

	Segment uint64 // size in bytes of a WAL file; set before each session
	// the reader has warned of a message with our prefix that is not transactional
	warnedNonTransactional bool
	WarnedStops            map[string]bool // Stops that the monitor has warned of, by their text
	// end of the server's WAL at the last check that found publication and tables in order; 0: none
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
	term   *Term
	conn   net.Conn
	front  *pgproto3.Frontend
	pid    uint32       // of our walsender
	sends  schema.Sends // what the publication sends, as it is remembered
	walEnd uint64       // the end of the server's WAL when the session began

	lastRead lastTransaction // that must come again; the reader's

	// admitted is the number of events of the current transaction that the line has admitted. It
	// belongs to the reader, and to finishStop after the reader has ended.
	admitted int

	failover bool // the slot is a failover slot: standbys must have what is reported as settled
	// awaited is the position that the named standbys must have before the next report; 0: none
	awaited     atomic.Uint64
	onNamed     atomic.Uint64    // the last awaited position that they have
	standbyWait slot.StandbyWait // the monitor's

	Received atomic.Uint64 // highest position received: a commit's end or a keepalive's
	// odd while the reader works on a message, even while it waits for one
	frames   atomic.Uint64
	stopping atomic.Bool // the reader returns at the next boundary of transactions
	cutNow   atomic.Bool // the reader returns at once, wherever it is
	inTx     atomic.Bool // the reader is inside a transaction
	readDone atomic.Bool // the reader has returned
	// the last report: the flush limit is raised for any watermark, at once
	finalReport atomic.Bool

	replyNow  chan struct{} // the server asked for a report
	lookAgain chan struct{} // the reporter has to look again
	raise     chan struct{} // the flush limit is too low

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
		Shared: s, ShutdownWatch: watch, term: t, conn: h.Conn, front: h.Frontend, pid: source.BackendPID(h.CustomData), coalescer: pace,
		sends: sent, walEnd: uint64(view.Current), lastRead: again, failover: view.Failover,
		replyNow: make(chan struct{}, 1), lookAgain: make(chan struct{}, 1), raise: make(chan struct{}, 1),
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
		err := se.readStream(readCtx)
		se.readDone.Store(true)
		readerDone <- err
		if se.failover {
			se.readOnForPosition(ctx)
		}
	})
	start(se.runReporter)
	start(se.keepFlushLimit)
	start(se.runMonitor)
	start(se.watchSilence)

	err := stopAmong(se.awaitEnd(reading, draining, readerDone, failed, cutReading), failed)

	cancel()
	cutReading()
	_ = se.conn.SetDeadline(time.Now()) //nolint:errcheck // a dead connection has ended its users already
	all.Wait()
	_ = se.conn.Close() // nothing is lost with it
	se.term.Line.Disconnected()
	return err
}

// stopAmong returns a Stop that occurred while awaitEnd was handling another end of the session,
// such as a signal. If there is none it returns err.
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

// awaitEnd waits for the first event that ends the session, and ends it accordingly.
func (se *Session) awaitEnd(reading, draining context.Context, readerDone <-chan error, failed <-chan error, cutReading func()) error {
	select {
	case <-reading.Done():
		se.Status.EnterPhase(slot.Stopping, "finishing what was read")
		ctx, cancel := se.graceContext(draining)
		defer cancel()
		err := se.stopReading(ctx, readerDone, cutReading)
		return se.finishStop(ctx, err)
	case <-se.shutdown:
		return se.releaseSlot(readerDone)
	case err := <-failed:
		return err
	case <-se.term.done:
		if se.term.err != nil {
			return se.term.err
		}
		return errors.New("the lanes ended")
	case err := <-readerDone:
		var stop *event.Stop
		// What was read before is delivered and reported, so that the next start, after the mapping
		// was corrected or with the missing configuration, has less to repeat.
		if errors.As(err, &stop) && (stop.Code == event.ExitMapping || stop.Reason == schema.NotConfigured) {
			ctx, cancel := se.graceContext(draining)
			defer cancel()
			return se.orHiddenColumn(draining, se.finishStop(ctx, err))
		}
		return err
	}
}

// orHiddenColumn returns the Stop for an altered publication if there is one: a column that the
// publication hides looks in the stream like a dropped one. Otherwise it returns err.
func (se *Session) orHiddenColumn(ctx context.Context, err error) error {
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

// graceContext returns a context that ends when a stop must be over: after delivery.shutdown_grace,
// with draining, or shutdownPatience after the server began to shut down too (I10).
func (se *Session) graceContext(draining context.Context) (context.Context, context.CancelFunc) {
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

// readOnForPosition reads, and forgets, what the server sends after the reader has returned: with a
// failover slot the last watermark is reported only once the stream has passed the position that
// was read after its raise. What comes is given to nobody, so it stays above the watermark.
func (se *Session) readOnForPosition(ctx context.Context) {
	for {
		msg, err := se.front.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Reset the deadline first, then look: Run does it the other way round.
			if err = se.conn.SetReadDeadline(time.Time{}); err == nil && ctx.Err() == nil {
				continue
			}
		}
		if err != nil || ctx.Err() != nil {
			return // finishStop waits no longer than it would
		}
		if data, ok := msg.(*pgproto3.CopyData); ok {
			se.notePosition(data.Data)
		}
	}
}

// notePosition notes the position of a keepalive or of the end of a transaction, and drops the
// rest.
func (se *Session) notePosition(data []byte) {
	const inXLog, endOfCommit = 1 + 24, 1 + 1 + 8 // two positions and a time; flags and a position
	switch {
	case len(data) == 1+17 && data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		se.noteReceived(pglogrepl.LSN(binary.BigEndian.Uint64(data[1:])))
		if data[17] != 0 {
			signal(se.replyNow)
		}
	case len(data) >= inXLog+endOfCommit+8 && data[0] == pglogrepl.XLogDataByteID && data[inXLog] == 'C':
		se.noteReceived(pglogrepl.LSN(binary.BigEndian.Uint64(data[inXLog+endOfCommit:])))
	}
}

// cutReader ends the reader inside its transaction, and returns its error.
func (se *Session) cutReader(readerDone <-chan error, cutReading func()) error {
	se.cutNow.Store(true)
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

// finishStop drains the lanes, reports the last watermark and has the server acknowledge it. Only
// then may the flush limit go down, and only then is the stop a clean one. readErr is why the
// reader returned; if it is a Stop, it is returned.
func (se *Session) finishStop(draining context.Context, readErr error) error {
	se.term.Line.Stopping()
	settled := se.WaitSettled(draining)
	if err := se.laneError(); err != nil {
		return err
	}
	if err := se.reportFinally(draining); err != nil {
		se.Cfg.Log.Warn("the last report was not acknowledged: what it covered is sent again", zap.Error(err))
	} else if settled == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := LowerFlushLimit(ctx, se.Pool, se.Cfg, se.term, se.pid, se.Good()); err != nil {
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
		return GraceOverStop(se.term.Line.Unsettled())
	}
	return ErrCleanStop
}

// WaitSettled waits until nothing is unsettled. It returns an error when draining is done, or the
// lanes have ended, which settle nothing more.
func (se *Session) WaitSettled(draining context.Context) error {
	ctx, cancel := context.WithCancel(draining)
	defer cancel()
	go func() {
		select {
		case <-se.term.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return se.term.Line.WaitSettled(ctx)
}

// laneError returns why the lanes have ended, for example because of a newer leader; nil while they
// run.
func (se *Session) laneError() error {
	select {
	case <-se.term.done:
		return se.term.err
	default:
		return nil
	}
}

// reportFinally raises the flush limit for the last watermark and waits until the pool sees it in
// the slot: 4 s, or 500 ms once draining is done or if a standby is waited for already. Writing to
// the socket is not enough: a close with unread data behind it can discard the report.
func (se *Session) reportFinally(draining context.Context) error {
	patience := 4 * time.Second
	if draining.Err() != nil || len(se.Status.Snapshot().WaitingForStandby) > 0 {
		patience = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	se.finalReport.Store(true)
	want := se.term.Line.Watermark().LSN
	for {
		signal(se.lookAgain)
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
		_ = se.term.Line.WaitSettled(ctx) //nolint:errcheck // settled or not, the server is let go
	}()
	select {
	case <-settled:
	case err := <-readerDone:
		se.Cfg.Log.Debug("the server ended the stream", zap.Error(err))
		cancel()
		<-settled
	}
	se.flushReport()
	se.Cfg.Log.Info("the server is shutting down: released the slot", zap.Int("unsettled", se.term.Line.Unsettled()))
	return ErrServerStopping
}

// shutdownPatience is how long a shutdown of the server is delayed for events that wait for a dead
// broker.
const shutdownPatience = 5 * time.Second

// flushReport gives the reporter a moment to write a last report, when the server shuts down: its
// walsender waits until we have reported what it sent, or have gone.
func (se *Session) flushReport() {
	signal(se.lookAgain)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for want := se.term.Line.Watermark().LSN; uint64(want) > se.term.Reported.Load() && uint64(want) <= se.term.FlushLimit.Load(); {
		if !source.Sleep(ctx, time.Millisecond) {
			return
		}
	}
}

// GraceOverStop is the Stop when the grace period ended before every event was settled.
func GraceOverStop(unsettled int) *event.Stop {
	return &event.Stop{
		Code: event.ExitCut, Reason: "cut",
		What: fmt.Sprintf("stopped with %d events not settled; they are sent again at the next start", unsettled),
		Fix:  "raise delivery.shutdown_grace to give the broker more time",
	}
}
