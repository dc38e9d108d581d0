// The flush limit: no position is reported above a number that was first made durable, so a slot
// that was dropped and re-created, or moved, is noticed.

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/standbys"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

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
	entries, left := t.Sent.Take()
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
		t.Sent.Return(entries)
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
	t.Sent.Done(entries)
	t.recorded.Store(max(t.recorded.Load(), uint64(mark.Own)))
	t.FlushLimit.Store(max(t.FlushLimit.Load(), uint64(flushLimit)))
	t.Proven.Store(settled)
	return nil
}

func whyNotRaised(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term) error {
	rec, err := slot.ReadRecord(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	if rec == nil || rec.Epoch != t.Epoch {
		return Fenced(c, t.Epoch)
	}
	return slot.ErrNotActive
}

// LowerFlushLimit is the last statement of a clean stop: from now on a slot above that position has
// been re-created or moved. The final report was acknowledged before, and nothing is reported
// after.
func LowerFlushLimit(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term, pid uint32, good pglogrepl.LSN) error {
	at := pglogrepl.LSN(t.Reported.Load())
	_, err := pool.Exec(ctx, `WITH fence AS (SELECT FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
		UPDATE cdc_relay.progress p SET max_flush_lsn = $3, reported = $3, good = greatest(p.good, $5), at = now() FROM fence WHERE p.slot = $1
			AND EXISTS (SELECT FROM pg_replication_slots r WHERE r.slot_name = $1 AND r.active_pid = $4)`,
		c.Slot, t.Epoch, at, int32(pid), good)
	if err != nil {
		return fmt.Errorf("lower flush limit: %w", err)
	}
	return nil
}

// keepFlushLimit raises the flush limit when the reporter asks, in a goroutine of its own: reports
// continue while a raise waits for the database. A raise whose answer is lost leaves the table
// above what we know, which is the safe side.
func (se *Session) keepFlushLimit(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-se.raise:
			// The raise was requested twice while one was under way. After the last report of a
			// clean stop the flush limit goes down, and nothing may put it up again.
			if limit, _ := se.limit(); se.t.isRecorded(se.t.Line.Watermark()) && se.t.Line.Watermark().LSN <= limit {
				continue
			}
		case <-se.t.Sent.Full():
			// At the end the reporter asks for each raise: see above.
			if se.final.Load() {
				continue
			}
		}
		source.AtWork(se.Cfg.Hooks.FlushLimit, true)
		err := RaiseFlushLimit(ctx, se.Pool, se.Cfg, se.t, se.pid, se.Good())
		if err == nil && se.failover {
			err = se.awaitStandbys(ctx)
		}
		source.AtWork(se.Cfg.Hooks.FlushLimit, false)
		var stop *event.Stop
		switch {
		case err == nil:
			said = ""
			signal(se.kick)
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
		if err != nil && !se.final.Load() {
			gap = flushLimitRetry
		}
		if (err != nil || !se.final.Load()) && !source.Sleep(ctx, gap) {
			return nil
		}
	}
}

// awaitStandbys makes what was settled at the raise reportable once the stream has passed the end
// of the WAL, read after the raise was committed. See onStandbys. Where no standby is named there
// is nothing to wait for: it is reported at once, as from any other slot.
func (se *Session) awaitStandbys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var end pglogrepl.LSN
	err := se.Pool.QueryRow(ctx, `SELECT CASE coalesce(current_setting('synchronized_standby_slots', true), '')
		WHEN '' THEN '0/0' ELSE pg_current_wal_flush_lsn() END`).Scan(&end)
	if err != nil {
		return fmt.Errorf("read the end of the WAL after a raise of the flush limit: %w", err)
	}
	se.t.onStandbys.Store(&onStandbys{settled: se.t.Proven.Load(), passed: uint64(end)})
	se.awaited.Store(uint64(end)) // the reader may have passed it already: the reporter looks next
	se.coalescer.nap.end()        // it may be a keepalive that says so
	return nil
}

// askStandbys asks, while the stream is not there yet, whether the named standbys have the position
// that is awaited: by their slots, as the walsender does. A stream that catches up comes to the end
// of the WAL last of all, and until then nothing would be reported: a restart would send all of it
// again. It is asked once a second, and not at all when the stream is there within one.
func (se *Session) askStandbys(ctx context.Context) {
	at := se.awaited.Load()
	for se.Received.Load() < at && source.Sleep(ctx, askStandbysEvery) && se.awaited.Load() == at {
		source.AtWork(se.Cfg.Hooks.FlushLimit, true)
		view, err := standbys.Read(ctx, se.Pool)
		source.AtWork(se.Cfg.Hooks.FlushLimit, false)
		switch {
		case err != nil: // the next statement of the session meets it, too
		case view.HaveAll(pglogrepl.LSN(at)): // or none is named any more
			se.passed(at)
			return
		}
	}
}

const askStandbysEvery = time.Second

// passed wakes the reporter when the reader comes to the position that is awaited.
func (se *Session) passed(to uint64) {
	if at := se.awaited.Load(); at != 0 && to >= at && se.awaited.CompareAndSwap(at, 0) {
		se.onNamed.Store(at)
		signal(se.kick)
	}
}

// flushLimitGap is the least time between two raises: each is a commit in the source database.
const flushLimitGap = 100 * time.Millisecond

// flushLimitRetry is the pause after a raise that failed: each try may be a connection to a server
// that has none left. A clean stop may have to wait for it.
const flushLimitRetry = time.Second
