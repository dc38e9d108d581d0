// The decision about the slot: whether the ID is that of what is found now, and whether the options
// fit.

package accept

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// slot accepts the slot as it is, or with NewSlot a new one.
func (a *acceptance) slot(ctx context.Context) error {
	stop, err := a.found.Judge(ctx, a.pool, a.c)
	if err != nil {
		return err
	}
	if a.opt.ID != a.found.ID {
		other, err := a.otherSystem(ctx)
		switch {
		case err != nil:
			return err
		case other != "":
			return a.system(ctx, other)
		}
		return a.notOpen(ctx, stop)
	}
	// the command takeover has found it
	takeover := a.found.Record != nil && a.found.Record.State == slot.StateTakeover
	if stop != nil && stop.Finding == "" && !takeover {
		return usage("this cannot be accepted as it is: "+stop.What, stop.Fix)
	}
	if err := a.checkSlot(ctx); err != nil {
		return err
	}
	reason := "slot_moved" // as a relay found it that ran: the database alone does not show it
	if stop != nil {
		reason = stop.Reason
	}
	what := "the database does not show what the relay found"
	if stop != nil {
		what = stop.What
	}
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error { return a.write(ctx, tx, reason, what) })
	if err == nil {
		a.c.Log.Debug("accepted", zap.String("finding", a.opt.ID), zap.String("reason", reason))
	}
	return err
}

// checkSlot returns why the options do not fit what was found.
func (a *acceptance) checkSlot(ctx context.Context) error {
	rec, view := a.found.Record, a.found.View
	switch {
	case view != nil && view.Active():
		return usage(fmt.Sprintf("slot %q is active for %s", a.c.Slot, view.HolderName()), "stop it first")
	case a.moved() && !a.opt.SameData && !a.opt.Copy:
		return usage("this server is not the one that the slot was read from, and only you know which it is",
			"add --same-data if it goes on with the same data, or --copy if it is a copy and the other one goes on")
	case !a.moved() && (a.opt.SameData || a.opt.Copy):
		return usage("--same-data and --copy are for another server than the one that the slot was read from, and this is that one", "leave them out")
	case a.opt.SameData && a.onOtherSystem() && rec.Used && a.opt.Delivered == "":
		return usage("this is another system than the one that the slot was read from, and only you know whether all that was committed there was delivered",
			"add --delivered all if it was, but for deferred events and dead letters: no gap is kept, and recover leaves out the rows that came from there; "+
				"or --delivered unknown: a gap is kept, and recover sends every row that is not known to be sent, also those that were")
	case a.opt.Delivered != "" && !a.onOtherSystem():
		return usage("--delivered is for another system than the one that the slot was read from: on this one it is known what was sent", "leave it out")
	case a.opt.NewSlot && view == nil:
		return usage(fmt.Sprintf("slot %q does not exist, so the next start makes a new one anyway", a.c.Slot), "leave --new-slot out")
	case a.opt.NewSlot && rec == nil:
		return usage(fmt.Sprintf("slot %q is no relay's: it is not dropped", a.c.Slot), source.DropSlotHint(a.c.Slot))
	case !a.opt.NewSlot && view != nil:
		why, err := slot.CannotBeReadOn(ctx, a.pool, a.c, a.found.Server, rec, view)
		if err != nil {
			return err
		}
		if why != "" {
			return usage(fmt.Sprintf("slot %q cannot be read on: %s", a.c.Slot, why),
				"add --new-slot, which drops it with what waits in it; or cdc-relay recover, which also sends what is still in the outbox table")
		}
	}
	return nil
}

// notOpen says why the ID is not the finding's: it was accepted before, or something changed. The
// same command again is not refused while the next start has not used the decision.
func (a *acceptance) notOpen(ctx context.Context, now *event.Stop) error {
	before, err := a.before(ctx, "")
	if err != nil {
		return err
	}
	if rec := a.found.Record; before != "" && now == nil && rec != nil && rec.State == slot.StateAdopt {
		a.result.Done = "nothing: it was accepted " + before
		return nil
	}
	what := fmt.Sprintf("finding %s is not open: it was never found here, or has changed since", printable(a.opt.ID))
	if before != "" {
		what = fmt.Sprintf("finding %s is not open: it was accepted %s", printable(a.opt.ID), before)
	}
	if now == nil {
		return usage(what+", and nothing is found now about the slot", "if it is about rows, copy the whole command from the message, with its flags")
	}
	return usage(what+"; what is found now: "+now.What, now.Fix)
}
