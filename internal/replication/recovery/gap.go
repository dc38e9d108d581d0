// A gap that an operator has accepted, of a slot that is in use again.

package recovery

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// fillGap copies the rows of the gap, without a new slot. They have the incarnation of the slot
// before the gap, so they are sent before what waits of a later one; what was sent in the meantime
// was sent before them. So the order of a key is not kept between them and newer events.
//
// Nobody holds the slot, and the epoch is raised with the copy: a relay that becomes the leader
// meanwhile has not seen these rows, and its term ends.
func (r *run) fillGap(ctx context.Context) error {
	finish := func(ctx context.Context, tx pgx.Tx) error {
		view, err := slot.Read(ctx, r.pool, r.c.Slot)
		if err != nil {
			return err
		}
		if view != nil && view.Active() {
			return usage(fmt.Sprintf("slot %q is in use by %s since: recover runs while no relay does", r.c.Slot, view.HolderName()), "stop every relay of this slot, and run it again")
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

// gapPositions are below the end of the gap, and above everything that waits of its incarnation.
// Several gaps may end at one position: an operator accepts a slot again that has not moved.
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
