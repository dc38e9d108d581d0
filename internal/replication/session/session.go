// Package session is one START_REPLICATION to its end: the reader, the reporter, the flush limit,
// the checks while it runs, and the stop.
package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

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
		se.Status.Enter(survey.Stopping, "finishing what was read")
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
		if errors.As(err, &stop) && (stop.Code == event.ExitMapping || stop.Reason == publication.NotConfigured) {
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
