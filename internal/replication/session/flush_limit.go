// The flush limit: no position is reported above a number that was first made durable, so a slot
// that was dropped and re-created, or moved, is noticed.

package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/standbys"
)

// RaiseFlushLimit makes it durable that positions up to the current end of the WAL may be reported.
// It changes nothing if we are fenced (a Stop) or do not hold the slot (slot.ErrNotActive). good
// (0: not known) is written in the same statement; every transaction below goodXID had ended by
// then.
//
// It also keeps up to which transaction everything is settled, for slot.MakeReady and recover. A
// transaction that has ended before the statement's snapshot was committed below the end of the WAL
// as the statement reads it. So it is settled once the watermark has passed that, which the next
// raise finds out. A statement of another leader in between changes nothing of this. What was
// committed after the publication was last in order may not have been sent, so it does not count.
//
// And it keeps the watermark itself, settled_lsn, as it was before the statement was sent: a server
// that has it also has each row by which an event below it was settled (see onStandbys).
func RaiseFlushLimit(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term, pid uint32, good pglogrepl.LSN, goodXID uint64) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var flushLimit pglogrepl.LSN
	settled := uint64(t.Line.Watermark().LSN) // before the statement is sent
	err := pool.QueryRow(ctx, `WITH fence AS (SELECT incarnation FROM cdc_relay.slots WHERE slot = $1 AND epoch = $2 FOR SHARE)
		UPDATE cdc_relay.progress p SET max_flush_lsn = pg_current_wal_insert_lsn(), reported = $3, good = greatest(p.good, $5), at = now(),
			settled_lsn = CASE WHEN p.settled_of = fence.incarnation THEN greatest(p.settled_lsn, $6) ELSE $6 END, settled_of = fence.incarnation,
			settled_xid = CASE WHEN $6::pg_lsn >= p.ended_at THEN greatest(p.settled_xid, least(p.ended_xid, $7::text::xid8)) ELSE p.settled_xid END,
			ended_xid = pg_snapshot_xmin(pg_current_snapshot()), ended_at = pg_current_wal_insert_lsn()
		FROM fence WHERE p.slot = $1
			AND EXISTS (SELECT FROM pg_replication_slots r WHERE r.slot_name = $1 AND r.active_pid = $4)
		RETURNING p.max_flush_lsn`, c.Slot, t.Epoch, pglogrepl.LSN(t.Reported.Load()), int32(pid), good, pglogrepl.LSN(settled), strconv.FormatUint(goodXID, 10)).Scan(&flushLimit)
	if source.IsNoRows(err) {
		return whyNotRaised(ctx, pool, c, t)
	}
	if err != nil {
		return fmt.Errorf("raise flush limit: %w", err)
	}
	t.FlushLimit.Store(max(t.FlushLimit.Load(), uint64(flushLimit)))
	t.Proven.Store(settled)
	return nil
}

// KeepSettled keeps up to which transaction everything is settled, as RaiseFlushLimit does: a raise
// is sent before the watermark has passed the end of the WAL, and before the publication is looked
// at again. Without another event the next one comes late. It writes only what is new. all: what
// had ended at the last raise is kept.
func KeepSettled(ctx context.Context, pool *pgxpool.Pool, c *source.Config, t *Term, goodXID uint64) (all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	settled := t.Line.Watermark().LSN // before the statement is sent
	good := strconv.FormatUint(goodXID, 10)
	var more bool
	err = pool.QueryRow(ctx, `SELECT coalesce(least(ended_xid, $3::text::xid8) > coalesce(settled_xid, '0'), false), coalesce(settled_xid >= ended_xid, false)
		FROM cdc_relay.progress WHERE slot = $1 AND ended_at <= $2`, c.Slot, settled, good).Scan(&more, &all)
	if err == nil && more {
		err = pool.QueryRow(ctx, `WITH fence AS (SELECT incarnation FROM cdc_relay.slots WHERE slot = $1 AND epoch = $4 FOR SHARE)
			UPDATE cdc_relay.progress p SET settled_xid = greatest(p.settled_xid, least(p.ended_xid, $3::text::xid8)),
				settled_lsn = CASE WHEN p.settled_of = fence.incarnation THEN greatest(p.settled_lsn, $2::pg_lsn) ELSE $2::pg_lsn END, settled_of = fence.incarnation FROM fence
			WHERE p.slot = $1 AND p.ended_at <= $2 RETURNING p.settled_xid >= p.ended_xid`, c.Slot, settled, good, t.Epoch).Scan(&all)
	}
	if err != nil && !source.IsNoRows(err) {
		return false, fmt.Errorf("keep the settled transactions: %w", err)
	}
	return all && err == nil, nil
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
		}
		// The raise was requested twice while one was under way. After the last report of a clean
		// stop the flush limit goes down, and nothing may put it up again.
		if limit, _ := se.limit(); se.t.Line.Watermark().LSN <= limit {
			continue
		}
		source.AtWork(se.Cfg.Hooks.FlushLimit, true)
		err := RaiseFlushLimit(ctx, se.Pool, se.Cfg, se.t, se.pid, se.Good(), se.goodXID.Load())
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
