// The new slot: in the place of a lost one, or the first one.

package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// replaceSlot drops what is left of the slot, makes a new one, and copies the rows of the gap in
// its snapshot. All that can be checked in advance was checked before it.
func (r *run) replaceSlot(ctx context.Context, rec *slot.Record, view *slot.View) error {
	if err := schema.EnsurePublication(ctx, r.pool, r.c); err != nil {
		return err
	}
	sent, err := schema.CheckPublication(ctx, r.pool, r.c, schema.Sends{})
	if err != nil {
		return err
	}
	r.sent = sent.KeepForeign(r.remembered).AddRemembered(r.remembered)
	if err := slot.BeginRemaking(ctx, r.pool, r.c); err != nil {
		return err
	}
	if err := slot.Drop(ctx, r.pool, r.c, r.id, view, "lost"); err != nil {
		r.restoreState(ctx, rec)
		return err
	}
	made, none, err := slot.Make(ctx, r.pool, r.stream, r.c)
	if err != nil {
		if none {
			r.restoreState(ctx, rec)
		}
		return err
	}
	return r.fillNewSlot(ctx, made, func(ctx context.Context) {
		if slot.DropUnfinished(ctx, r.pool, r.c) {
			r.restoreState(ctx, rec)
		}
	})
}

// restoreState puts the record's state back, once there is certainly no slot. An operator's
// acceptance of the loss comes back with it.
func (r *run) restoreState(ctx context.Context, rec *slot.Record) {
	err := slot.CancelRemaking(ctx, r.pool, r.c, rec.State)
	if err != nil {
		r.c.Log.Warn("failed to write that no slot is being made: a relay stops with exit 3 until recover is run again", zap.Error(err))
	}
}

// fillNewSlot copies the rows that the snapshot of a new slot shows, and makes the slot ready. undo
// is called if that has certainly failed.
func (r *run) fillNewSlot(ctx context.Context, made slot.Made, undo func(context.Context)) error {
	r.setUntil(made.At)
	err := r.copyRows(ctx, made.Snapshot, r.nextIncarnation(made.At), func(ctx context.Context, tx pgx.Tx) error {
		if err := r.closeGaps(ctx, tx); err != nil {
			return err
		}
		if err := r.noteFirst(ctx, tx); err != nil {
			return err
		}
		return slot.MakeReady(ctx, tx, r.c, r.id, r.sent, made.At)
	})
	if err != nil {
		ctx = context.WithoutCancel(ctx)
		committed, failed := r.wasCommitted(ctx)
		switch {
		case failed != nil: // whoever runs it again finds out
			return errors.Join(err, failed)
		case !committed:
			undo(ctx)
			return err
		}
	}
	r.sent.LogForeign(ctx, r.pool, r.c)
	return nil
}

// noteFirst notes, for a backfill, which rows were there before the slot and are not sent by it:
// none, unless a condition left some out. Whoever left them out delivers them.
func (r *run) noteFirst(ctx context.Context, tx pgx.Tx) error {
	switch {
	case !r.report.backfill: // a table of which it is not known begins with the next leader
	case r.opt.Where != "" || r.report.LeftOut > 0:
		first, err := slot.PastSnapshot(ctx, tx, r.c.Slot)
		if err != nil {
			return err
		}
		r.sent.SetFirst(first)
	default:
		r.sent.SetFirst(schema.NoRows)
	}
	return nil
}

// wasCommitted reports whether the copy was committed although its commit was not answered. The
// lock waits for a transaction that is still at it: its connection is closed, so it ends.
func (r *run) wasCommitted(ctx context.Context) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	_, err = r.pool.Exec(ctx, `SELECT FROM cdc_relay.slots WHERE slot = $1 FOR UPDATE`, r.c.Slot)
	if err == nil {
		err = r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM cdc_relay.audit WHERE seq = $1)`, r.audited).Scan(&yes)
	}
	if err != nil {
		return false, fmt.Errorf("read whether the copy was committed: %w", err)
	}
	return yes, nil
}

// setUntil notes where the gap ends: where the new slot begins.
func (r *run) setUntil(at pglogrepl.LSN) {
	r.task.untilLSN = at
	r.report.UntilLSN = at.String()
}

// closeGaps notes that the accepted gaps before the new slot are recovered. MakeReady notes where
// they end.
func (r *run) closeGaps(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `UPDATE cdc_relay.gap SET recovered_at = now() WHERE slot = $1 AND system_id = $2 AND recovered_at IS NULL`, r.c.Slot, r.id.SystemID)
	if err != nil {
		return fmt.Errorf("write cdc_relay.gap: %w", err)
	}
	return nil
}

// runBackfill makes the first slot, as the first start of a relay does, and copies the rows that
// its snapshot shows. The record is in state creating meanwhile: a start after a kill makes the
// slot again and refuses the rows.
func (r *run) runBackfill(ctx context.Context) error {
	c := r.c
	rec, view, err := slot.ReadBoth(ctx, r.pool, c.Slot)
	switch {
	case err != nil:
		return err
	case rec != nil && (rec.Used || rec.State != slot.StateCreating):
		return usageStop(fmt.Sprintf("slot %q has been in use: rows from before it cannot be told from those that it has sent", c.Slot),
			"for rows that a lost slot has not sent run `cdc-relay recover`; for a new relay of all rows choose another source.slot")
	case rec == nil && view != nil:
		return slot.UnknownStop(c, view, r.id)
	}
	// nothing says whether the rows came with a dump
	r.report.backfill, r.restored = true, true
	if err := r.prepareTables(ctx, true); err != nil {
		return err
	}
	if err := r.countRows(ctx, "", nil); err != nil {
		return err
	}
	if err := schema.EnsurePublication(ctx, r.pool, c); err != nil {
		return err
	}
	if r.sent, err = schema.CheckPublication(ctx, r.pool, c, schema.Sends{}); err != nil {
		return err
	}
	if rec != nil {
		if err := slot.Drop(ctx, r.pool, c, r.id, view, "unfinished"); err != nil {
			return err
		}
	}
	if err := slot.BeginCreating(ctx, r.pool, c, r.id); err != nil {
		return err
	}
	made, none, err := slot.Make(ctx, r.pool, r.stream, c)
	if err != nil {
		if none {
			slot.ForgetUnmade(ctx, r.pool, c)
		}
		return err
	}
	return r.fillNewSlot(ctx, made, func(ctx context.Context) { slot.UndoCreation(ctx, r.pool, c) })
}

// fillGap copies the rows of the gap, without a new slot. They have the incarnation of the slot
// before the gap, so they are sent before the deferred rows of later incarnations. But the events
// that were sent in the meantime were sent before them. So the order of a key is not kept between
// them and newer events.
//
// Nobody holds the slot, and the epoch is raised with the copy: a relay that becomes the leader
// meanwhile has not seen these rows, and its term ends.
func (r *run) fillGap(ctx context.Context) error {
	finish := func(ctx context.Context, tx pgx.Tx) error {
		view, err := slot.ReadView(ctx, r.pool, r.c.Slot)
		if err != nil {
			return err
		}
		if view != nil && view.Active() {
			return usageStop(fmt.Sprintf("slot %q is in use by %s since: recover runs while no relay does", r.c.Slot, view.HolderName()), "stop every relay of this slot, and run it again")
		}
		if err := slot.RaiseEpoch(ctx, tx, r.c); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE cdc_relay.gap SET recovered_at = now() WHERE id = $1 AND recovered_at IS NULL`, r.task.gap)
		if err != nil {
			return fmt.Errorf("write cdc_relay.gap: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("recover gap %d: another session has recovered it", r.task.gap)
		}
		return nil
	}
	return r.copyRows(ctx, "", r.gapPositions, finish)
}

// gapPositions returns the gap's incarnation, and positions below the end of the gap and above
// everything that waits of that incarnation. Several gaps may end at one position, when an operator
// accepts a slot again that has not moved.
func (r *run) gapPositions(ctx context.Context, tx pgx.Tx) (int64, positions, error) {
	var before int64
	var highest pglogrepl.LSN
	err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM cdc_relay.gap WHERE slot = $1 AND until_lsn = $4::text::pg_lsn AND id < $5),
		greatest((SELECT max(commit_lsn) FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2 AND incarnation = $3),
			(SELECT max(commit_lsn) FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND incarnation = $3), '0/0')`,
		r.c.Slot, r.id.SystemID, r.task.incarnation, r.task.untilLSN.String(), r.task.gap).Scan(&before, &highest)
	if err != nil {
		return 0, positions{}, fmt.Errorf("read the positions of the retry table: %w", err)
	}
	at := positionsBelow(r.task.untilLSN - 8*pglogrepl.LSN(before))
	if highest >= at.first() {
		at = positions{highest&^7 + 8}
	}
	return r.task.incarnation, at, nil
}

// Commit records begin at multiples of 8, so the seven positions between two of them are free. Each
// takes as many events as cdc_position has digits for.
const (
	perCommit = 100_000_000
	commits   = 7
)

// positions are the positions of the copies of one run. They rise with the rank of a row, between
// base and base + 8.
type positions struct{ base pglogrepl.LSN } // a multiple of 8

// positionsBelow are the free positions just below at, from which on the slot sends commits.
func positionsBelow(at pglogrepl.LSN) positions { return positions{at&^7 - 8} }

// position returns the position of the row with that rank, counted from 0.
func (p positions) position(rank int64) (event.Position, error) {
	if rank >= perCommit*commits {
		return event.Position{}, fmt.Errorf("more than %d rows cannot be copied at once: narrow them with a WHERE", perCommit*commits)
	}
	return event.Position{Commit: p.base + 1 + pglogrepl.LSN(rank/perCommit), Index: uint32(rank % perCommit)}, nil
}

func (p positions) first() pglogrepl.LSN { return p.base + 1 }
func (p positions) last() pglogrepl.LSN  { return p.base + commits }
