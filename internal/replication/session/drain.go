// The end of a session: reading stops, what was read is settled within the grace period (drain),
// and the server acknowledges the last report, so that a clean stop sends nothing twice.

package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

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
