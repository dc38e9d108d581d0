// Writing a decision about the slot: the record, the interval that may be missing, the rows of
// another server, and the audit.

package accept

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// write is the transaction. The slot is dropped or moved last: what is before it can be undone, and
// a commit that fails after it leaves a slot that is lost or ahead, which is another finding.
func (a *acceptance) write(ctx context.Context, tx pgx.Tx, reason, what string) error {
	left := false
	switch {
	case a.opt.Delivered == DeliveredAll:
		var err error
		if left, err = a.recordSent(ctx, tx); err != nil {
			return err
		}
	case a.moved():
		if err := a.moveRows(ctx, tx); err != nil {
			return err
		}
	}
	if err := a.adopt(ctx, tx); err != nil {
		return err
	}
	if err := a.keepGap(ctx, tx, reason, left); err != nil {
		return err
	}
	if err := a.forgetProgress(ctx, tx); err != nil {
		return err
	}
	if err := a.audit(ctx, tx, what); err != nil {
		return err
	}
	a.result.Done = "the next start takes the slot as it is"
	if a.found.View == nil || a.opt.NewSlot {
		a.result.Done = "the next start makes a new slot"
	}
	if a.opt.NewSlot {
		if _, err := tx.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, a.c.Slot); err != nil {
			return fmt.Errorf("drop slot %q: %w", a.c.Slot, err)
		}
	}
	return a.passOriginal(ctx, tx)
}

// adopt sets the record's state, if the record is still what the ID was computed from. The decision
// is one about this server: a copy of the database, or a standby that is promoted before the next
// start, is another finding.
func (a *acceptance) adopt(ctx context.Context, tx pgx.Tx) error {
	rec, id := a.found.Record, a.found.Server
	sql, args := `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation) VALUES ($1, $3, $4, $2, 'adopt', 0)
		ON CONFLICT (slot) DO NOTHING`, []any{a.c.Slot, a.c.Publication, id.SystemID, id.Timeline}
	if rec != nil {
		was, err := rec.SentBefore(ctx, tx, id)
		if err != nil {
			return err
		}
		sql, args = `UPDATE cdc_relay.slots SET state = 'adopt', epoch = epoch + 1, changed_at = now(), system_id = $6, timeline = $7,
				sends = $8, restored = restored OR system_id <> $6
			WHERE slot = $1 AND state = $2 AND incarnation = $3 AND epoch = $4 AND sends::text = $5`,
			[]any{a.c.Slot, rec.State, rec.Incarnation, rec.Epoch, rec.SendsText, id.SystemID, id.Timeline, was}
	}
	tag, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return usage(fmt.Sprintf("the record of slot %q was changed meanwhile", a.c.Slot), "run `cdc-relay check`, and accept what it finds then")
	}
	return nil
}

// keepGap stores the interval that may be missing, for recover. A slot that was never used has
// none, and neither has a copy: what was committed before it is the original's to send. A gap that
// has no end yet goes on: the slot was accepted before and has not been in use since.
//
// If all was delivered before the move there is one only if rows are left that may have been
// written since. Where the next start makes the slot, it looks for such rows itself, in the slot's
// snapshot (slot.CreateSlot).
func (a *acceptance) keepGap(ctx context.Context, tx pgx.Tx, reason string, left bool) error {
	rec := a.found.Record
	if rec == nil || !rec.Used || a.opt.Copy || a.opt.Delivered == DeliveredAll && !left {
		return nil
	}
	from, _ := a.found.Interval(reason, 0)
	_, err := tx.Exec(ctx, `INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_lsn)
		SELECT $1::text, $2::text, $3, $4, $5, $6::text::pg_lsn
		WHERE NOT EXISTS (SELECT FROM cdc_relay.gap WHERE slot = $1 AND system_id = $2 AND until_xid IS NULL AND recovered_at IS NULL)`, a.c.Slot, a.found.Server.SystemID, rec.Incarnation, a.opt.ID, reason, lsn(from))
	if err != nil {
		return fmt.Errorf("write cdc_relay.gap: %w", err)
	}
	return nil
}

// forgetProgress has a copy count as a slot that was never in use: it has nothing to recover, so a
// start that is cut off while it makes a new slot does not offer to recover what the original
// sends.
func (a *acceptance) forgetProgress(ctx context.Context, tx pgx.Tx) error {
	if !a.opt.Copy {
		return nil
	}
	if _, err := tx.Exec(ctx, `DELETE FROM cdc_relay.progress WHERE slot = $1`, a.c.Slot); err != nil {
		return fmt.Errorf("write cdc_relay.progress: %w", err)
	}
	return nil
}

// lsn is NULL for a position that is not known.
func lsn(at pglogrepl.LSN) *string {
	if at == 0 {
		return nil
	}
	text := at.String()
	return &text
}

// moveRows gives the deferred rows, dead letters, requests and jobs of the other server to this
// one, or keeps them from being sent here.
//
// The rows of the other server have a lower incarnation than the slot gets when it is adopted, so
// they are sent before what is new of their ordering groups. A copy made with the server's files
// has the same system identifier; its rows get one that no server has.
func (a *acceptance) moveRows(ctx context.Context, tx pgx.Tx) error {
	rec, to := a.found.Record, a.found.Server.SystemID
	switch same := rec.SystemID == to; {
	case a.opt.Copy && same:
		to = rec.SystemID + "@" + strconv.Itoa(int(rec.Timeline))
	case a.opt.Copy || same: // they are another system's already, or this one's
		return nil
	}
	return a.move(ctx, tx, rec.SystemID, to)
}

// move gives the rows of a system to another one.
func (a *acceptance) move(ctx context.Context, tx pgx.Tx, from, to string) error {
	moved, err := slot.MoveRows(ctx, tx, a.c.Slot, from, to)
	a.result.Moved += moved
	return err
}
