// A copy of a server's files has the slot with what waits in it, which the original sends.

package accept

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// passOriginal moves the slot of a copy to where the copy's own timeline begins: what was committed
// before that was committed on the original too. The new position is not part of the transaction,
// so it is the last statement before its commit. A commit that fails leaves a slot that is ahead,
// which is another finding.
func (a *acceptance) passOriginal(ctx context.Context, tx pgx.Tx) error {
	if !a.opt.Copy || a.opt.NewSlot || a.found.View == nil || a.found.Record.SystemID != a.found.Server.SystemID {
		return nil // a slot of another system was made there
	}
	at, err := a.leftAt()
	if err != nil {
		return err
	}
	if a.found.View.ConfirmedFlush >= at {
		return nil
	}
	if _, err := tx.Exec(ctx, `SELECT pg_replication_slot_advance($1, $2)`, a.c.Slot, at); err != nil {
		return fmt.Errorf("advance slot %q to the end of timeline %d: %w (or add --new-slot)", a.c.Slot, a.found.Record.Timeline, err)
	}
	return nil
}

// leftAt is where this server left the timeline of the record.
func (a *acceptance) leftAt() (pglogrepl.LSN, error) {
	was := a.found.Record.Timeline
	at, known := a.found.Server.LeftAt(was)
	if !known {
		return 0, usage(fmt.Sprintf("the history of timeline %d does not have timeline %d, on which the slot was read", a.found.Server.Timeline, was),
			"add --new-slot: what waits in the slot may be what the other server sends")
	}
	return at, nil
}
