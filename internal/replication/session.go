package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// session is one START_REPLICATION to its end. The reader owns reads of conn and the decoder, the reporter owns writes;
// the ceiling, the monitor and the watch for the server's shutdown use the pool. run owns them all and conn's end.
type session struct {
	*Stream
	t       *term
	conn    net.Conn
	front   *pgproto3.Frontend
	pid     uint32
	decoder *decode.Decoder
	sent    sends  // what the publication sends, as it is remembered
	wal     uint64 // the end of the server's WAL when the session began

	again seenAgain // the reader's

	// admitted is how many events of the transaction being read the line took: the reader's, and after its end finish's.
	admitted int

	received atomic.Uint64 // highest position received: a commit's end or a keepalive's
	frames   atomic.Uint64 // odd while the reader works on one, even while it waits in Receive
	stopping atomic.Bool   // the reader returns at the next boundary of transactions
	cutAt    atomic.Bool   // it returns at once, wherever it is
	inTx     atomic.Bool
	readDone atomic.Bool // the reader has returned
	final    atomic.Bool // the ceiling is raised for any watermark, at once

	replyNow chan struct{} // the server asked for a report
	kick     chan struct{} // something the reporter reports on may have changed
	raise    chan struct{} // the ceiling is too low
	suspect  chan struct{} // a pool session was ended by the server: is it shutting down?
	shutdown chan struct{} // closed when the server is shutting down

	gulp *gulp // counts the bytes read
}

// newSession takes what the publication sends, with every OID by which rows of our tables may come, and the slot as it was
// before the first report.
func newSession(s *Stream, t *term, h *pgconn.HijackedConn, o opening, slot *slotView) *session {
	sent := o.sent
	tables := sent.ours(s.cfg.Tables)
	pace, _ := h.CustomData[gulpKey].(*gulp)
	var again seenAgain
	if t.newest.commit >= max(slot.ConfirmedFlush, o.from) { // what begins to commit there or later is sent
		again = t.newest
		again.from = max(slot.ConfirmedFlush, o.from)
	}
	return &session{
		Stream: s, t: t, conn: h.Conn, front: h.Frontend, pid: h.PID, gulp: pace,
		decoder: decode.New(decode.Config{
			Tables: tables, Messages: s.cfg.Messages, Columns: s.cfg.Columns, Dropped: sent.droppedPrefixes(&s.cfg),
		}),
		sent: sent, wal: uint64(slot.Current), again: again,
		replyNow: make(chan struct{}, 1), kick: make(chan struct{}, 1), raise: make(chan struct{}, 1),
		suspect: make(chan struct{}, 1), shutdown: make(chan struct{}),
	}
}

var (
	errServerStopping = errors.New("the server is shutting down")
	errReadStopped    = errors.New("reading stopped at a transaction boundary")
	errReadCut        = errors.New("reading stopped inside a transaction")
)

// run streams until the session ends, for whatever reason, and leaves nothing running. errCleanStop: reading was done
// and everything read is settled and reported.
func (se *session) run(reading, draining context.Context) error {
	se.begin()
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
	})
	start(se.report)
	start(se.keepCeiling)
	start(se.monitor)
	start(se.watchShutdown)

	err := se.nameGap(ctx, stopAmong(se.attend(reading, draining, readerDone, failed, cutReading), failed))

	cancel()
	cutReading()
	_ = se.conn.SetDeadline(time.Now()) //nolint:errcheck // a dead connection has ended its users already
	all.Wait()
	_ = se.conn.Close() // nothing is lost with it
	se.t.line.Disconnected()
	return err
}

// stopAmong is a Stop that came when attend was busy with another end of the session, a signal perhaps, else err.
func stopAmong(err error, failed <-chan error) error {
	var stop *outbox.Stop
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

func (se *session) begin() {
	se.sessions++
	se.said = ""
	if se.sessions > 1 && se.cfg.Hooks.Reconnect != nil {
		se.cfg.Hooks.Reconnect()
	}
	se.status.streaming()
	se.cfg.Log.Info("streaming", zap.String("slot", se.cfg.Slot), zap.Int64("epoch", se.t.epoch))
}

// attend waits for the first thing that ends the session, and ends it the way that fits.
func (se *session) attend(reading, draining context.Context, readerDone <-chan error, failed <-chan error, cutReading func()) error {
	select {
	case <-reading.Done():
		se.status.stopping()
		ctx, cancel := se.grace(draining)
		defer cancel()
		err := se.stopReading(ctx, readerDone, cutReading)
		return se.finish(ctx, err)
	case <-se.shutdown:
		return se.letGo(readerDone)
	case err := <-failed:
		return err
	case <-se.t.done:
		if se.t.err != nil {
			return se.t.err
		}
		return errors.New("the lanes ended")
	case err := <-readerDone:
		var stop *outbox.Stop
		// What was read before is delivered and reported: whoever goes on, after the mapping was corrected or with the
		// configuration that this relay lacks, has less to repeat.
		if errors.As(err, &stop) && (stop.Code == outbox.ExitMapping || stop.Reason == notConfigured) {
			ctx, cancel := se.grace(draining)
			defer cancel()
			return se.unlessHidden(draining, se.finish(ctx, err))
		}
		return err
	}
}

// unlessHidden is the Stop over a publication that was altered, where there is one: a column that it hides is missing from the
// stream as one that is gone. Else it is err, why the stream does not fit.
func (se *session) unlessHidden(ctx context.Context, err error) error {
	var stop *outbox.Stop
	if !errors.As(err, &stop) || stop.Code != outbox.ExitMapping {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	rec, asked := readRecord(ctx, se.pool, se.cfg.Slot)
	if asked != nil || rec == nil {
		return err
	}
	_, asked = lookAtSends(ctx, se.pool, &se.cfg, rec)
	if errors.As(asked, &stop) && stop.Reason == "publication" {
		return stop
	}
	return err
}

// grace is the time that a stop has: delivery.shutdown_grace, or what a server has that is shutting down too (I10).
func (se *session) grace(draining context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(draining, se.cfg.Grace)
	go func() {
		select {
		case <-se.shutdown:
			slept(ctx, shutdownPatience)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stopReading lets the reader come to the end of its transaction for half the grace, or until draining is done, then cuts it.
func (se *session) stopReading(draining context.Context, readerDone <-chan error, cutReading func()) error {
	se.stopping.Store(true)
	se.interruptIdle()
	half := time.NewTimer(se.cfg.Grace / 2)
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

func (se *session) cutReader(readerDone <-chan error, cutReading func()) error {
	se.cutAt.Store(true)
	cutReading()
	_ = se.conn.SetReadDeadline(time.Now()) //nolint:errcheck // a dead connection ends the reader too
	return <-readerDone
}

// interruptIdle wakes a reader that waits for a next transaction. One that is inside a transaction goes on: should the
// deadline hit it all the same, it takes the deadline back and reads on.
func (se *session) interruptIdle() {
	if !se.inTx.Load() {
		_ = se.conn.SetReadDeadline(time.Now()) //nolint:errcheck // a dead connection ends the reader too
	}
}

// finish drains the lanes, reports the last watermark and has the server acknowledge it. Only then may the ceiling go
// down, and only then is the stop a clean one. readErr is why the reader returned; a Stop among these is not forgotten.
func (se *session) finish(draining context.Context, readErr error) error {
	se.t.line.Stopping()
	settled := se.settle(draining)
	if err := se.laneError(); err != nil {
		return err
	}
	if err := se.reportFinally(draining); err != nil {
		se.cfg.Log.Warn("the last report was not acknowledged: what it covered is sent again", zap.Error(err))
	} else if settled == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := lowerCeiling(ctx, se.pool, &se.cfg, se.t, se.pid, se.good()); err != nil {
			se.cfg.Log.Warn("lower ceiling", zap.Error(err))
		}
	}
	var stop *outbox.Stop
	if errors.As(readErr, &stop) {
		return readErr
	}
	if errors.Is(readErr, errReadCut) {
		se.cfg.Log.Warn("stopped inside a transaction: its events are sent again at the next start", zap.Int("events", se.admitted))
	}
	if settled != nil {
		return cut(se.t.line.Unsettled())
	}
	return errCleanStop
}

// settle waits until nothing is unsettled, or the lanes have ended, which settle nothing more.
func (se *session) settle(draining context.Context) error {
	ctx, cancel := context.WithCancel(draining)
	defer cancel()
	go func() {
		select {
		case <-se.t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return se.t.line.WaitSettled(ctx)
}

// laneError is why the lanes have ended, a newer leader perhaps; nil while they have not.
func (se *session) laneError() error {
	select {
	case <-se.t.done:
		return se.t.err
	default:
		return nil
	}
}

// reportFinally raises the ceiling for the last watermark and waits until the pool sees that the slot has it: some seconds
// at most, and hardly at all once draining is done. What the socket was told is not enough: a close with unread data
// behind it can take the report away.
func (se *session) reportFinally(draining context.Context) error {
	patience := 4 * time.Second
	if draining.Err() != nil {
		patience = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	se.final.Store(true)
	want := se.t.line.Watermark().LSN
	for {
		signal(se.kick)
		slot, err := se.held(ctx, se.pid)
		if err != nil {
			return err
		}
		if slot.ConfirmedFlush >= want {
			return nil
		}
		if !slept(ctx, 10*time.Millisecond) {
			return fmt.Errorf("slot %q is at %s, not yet at %s: %w", se.cfg.Slot, slot.ConfirmedFlush, want, ctx.Err())
		}
	}
}

// letGo frees a server that is shutting down, which otherwise waits until we have reported its last record: at once when
// nothing is unsettled, else after some seconds (I10). No ceiling can be raised any more, so what is reported is what
// the ceiling allows.
func (se *session) letGo(readerDone <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		_ = se.t.line.WaitSettled(ctx) //nolint:errcheck // settled or not, the server is let go
	}()
	select {
	case <-settled:
	case err := <-readerDone:
		se.cfg.Log.Debug("the server ended the stream", zap.Error(err))
		cancel()
		<-settled
	}
	se.lastWords()
	se.cfg.Log.Info("the server is shutting down: let go of the slot", zap.Int("unsettled", se.t.line.Unsettled()))
	return errServerStopping
}

// shutdownPatience is how long a shutdown of the server is held up for events that wait for a dead broker.
const shutdownPatience = 5 * time.Second

// lastWords gives the reporter a moment to write what may be reported.
func (se *session) lastWords() {
	signal(se.kick)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for want := se.t.line.Watermark().LSN; uint64(want) > se.t.reported.Load() && uint64(want) <= se.t.ceiling.Load(); {
		if !slept(ctx, time.Millisecond) {
			return
		}
	}
}

// signal wakes the one goroutine that waits on a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
