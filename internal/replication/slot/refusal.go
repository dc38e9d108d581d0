// Why the next start does not use the slot: the findings (exit 3) about it.

package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Missing is the finding (exit 3) for a slot that the record has as ready and the server does not
// have.
func Missing(c *source.Config, rec *Record, id Identity) *event.Stop {
	if id.SystemID != "" && rec.OfOther(id) {
		stop := source.SlotLost(c, fmt.Sprintf("slot %q does not exist here: it was read from system %s on timeline %d, and this is system %s on timeline %d; what was committed after %s and not delivered before is only in the outbox table",
			c.Slot, rec.SystemID, rec.Timeline, id.SystemID, id.Timeline, rec.Reported), "")
		stop.Fix = source.MovedFix("cdc-relay recover --same-data, which makes a new slot, and sends what is still in the outbox table and what is deferred; or without what may be missing: ", rec.SystemID != id.SystemID)
		return stop
	}
	return source.SlotLost(c, fmt.Sprintf("slot %q no longer exists; what was committed after %s and not delivered before is only in the outbox table",
		c.Slot, rec.Reported), "")
}

// acceptedElsewhere is the finding (exit 3) for a slot that an operator accepted on another server:
// this is a copy of that one, or has taken its place before the next start.
func acceptedElsewhere(c *source.Config, rec *Record, view *View, id Identity) error {
	if view == nil {
		return Missing(c, rec, id)
	}
	return CheckIdentity(c, rec, view, id)
}

// Recovering is the leader in the record of a slot that recover makes. What it left when it was
// killed is recover's to complete, even if the loss was accepted before.
const Recovering = "cdc-relay recover"

// acceptedLoss reports whether an operator has accepted the loss of a slot that is being made
// again: its gap has no end yet. A start that was cut off then goes on without another word.
func acceptedLoss(ctx context.Context, q source.Querier, c *source.Config, rec *Record) (accepted bool, err error) {
	if !rec.Used || rec.Leader == Recovering {
		return false, nil
	}
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM cdc_relay.gap WHERE slot = $1 AND system_id = $2 AND until_xid IS NULL AND recovered_at IS NULL)`,
		c.Slot, rec.SystemID).Scan(&accepted)
	if err != nil {
		return false, fmt.Errorf("read cdc_relay.gap: %w", err)
	}
	return accepted, nil
}

// Unfinished is the finding (exit 3) for a slot that was lost, and whose creation by a relay was
// cut short. view is what it has left; nil: nothing.
func Unfinished(c *source.Config, view *View) *event.Stop {
	newSlot := ""
	if view != nil {
		newSlot = source.NewSlot
	}
	return source.SlotLost(c, fmt.Sprintf("slot %q was being made again, and that was not completed", c.Slot), newSlot)
}

// Refusal is why the next start does not use the slot as it is: what settleSlot and the leader
// would find. nil: it uses it, or creates what is missing. It changes nothing.
func Refusal(ctx context.Context, q source.Querier, c *source.Config, f *Found) error {
	rec, view := f.Record, f.View
	switch {
	case rec == nil && view == nil:
		return nil
	case rec == nil:
		return UnknownSlot(c, view, f.Server)
	case rec.State == StateCreating && rec.Used:
		if accepted, err := acceptedLoss(ctx, q, c, rec); err != nil || accepted {
			return err
		}
		return Unfinished(c, view)
	case rec.State == StateAdopt && rec.OfOther(f.Server):
		return acceptedElsewhere(c, rec, view, f.Server)
	case rec.State == StateCreating:
		return nil
	case rec.State == StateAdopt:
		was, err := rec.SentBefore(ctx, q, f.Server)
		if err == nil {
			err = CheckLeftOut(ctx, q, c, was)
		}
		if err != nil || view == nil {
			return err
		}
		if err := CheckIdentity(c, nil, view, f.Server); err != nil {
			return err
		}
		_, err = checkAdoptable(ctx, q, c, was)
		return err
	case rec.State == StateTakeover:
		return TakeoverUnfinished(c, rec)
	case view == nil:
		return Missing(c, rec, f.Server)
	}
	if err := CheckUse(ctx, q, c, rec, view, f.Server); err != nil {
		return err
	}
	if err := CheckPosition(c, rec, view, 0); err != nil {
		return err
	}
	_, err := CheckPublication(ctx, q, c, rec)
	return err
}

// CannotBeReadOn returns why a new slot is needed in the place of this one; "": none is. A slot of
// another system was made there (by pg_upgrade, say), and its publication has another OID.
func CannotBeReadOn(ctx context.Context, q source.Querier, c *source.Config, id Identity, rec *Record, view *View) (why string, err error) {
	switch {
	case view.Invalidated():
		return "the server has removed WAL that it needs", nil
	case rec == nil:
		return "", nil
	case rec.State == StateCreating:
		return "it was not completed", nil
	case rec.SystemID != id.SystemID || rec.Sends.Publication == 0:
		return "", nil
	}
	var oid uint32
	err = q.QueryRow(ctx, `SELECT coalesce((SELECT oid FROM pg_publication WHERE pubname = $1), 0)`, c.Publication).Scan(&oid)
	if err != nil {
		return "", fmt.Errorf("read pg_publication: %w", err)
	}
	if oid != rec.Sends.Publication && rec.Publication == c.Publication && len(rec.Sends.Tables) > 0 {
		return "rows in it were committed while the publication did not exist", nil
	}
	return "", nil
}

// TakeoverUnfinished is why a relay does not start a slot whose takeover is not complete.
func TakeoverUnfinished(c *source.Config, rec *Record) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("the takeover by slot %q from slot %q is not complete", c.Slot, rec.TookFrom),
		"cdc-relay takeover --from-slot "+rec.TookFrom)
}

// UnknownSlot handles a slot of our name without a record: another program's, or made by hand.
// Nothing shows what its publication hid while the rows in it were committed.
func UnknownSlot(c *source.Config, view *View, id Identity) error {
	if err := CheckIdentity(c, nil, view, id); err != nil {
		return err
	}
	what := "exists, but no relay has used it"
	if holder := view.HolderName(); holder != "" {
		what += "; it is active for " + holder
	}
	stop := source.ForeignSlot(c, what)
	stop.Fix += fmt.Sprintf(", and to go on where the slot's program stops: cdc-relay takeover --from-slot %s; or, if that program is gone for good, find and re-send what its publication may have hidden; to go on: %s",
		c.Slot, source.AcceptCommand)
	return stop
}

// Judge returns what the next start would end with, named; nil: it uses the slot, or creates it. It
// finds the tables, whose OIDs are in c from then on, and changes nothing.
//
// What only a relay that ran has found, and the database does not show, has an ID of this term: the
// epoch is part of it. Once a relay leads again the ID is not open any more.
func (f *Found) Judge(ctx context.Context, pool *pgxpool.Pool, c *source.Config) (stop *event.Stop, err error) {
	if err = f.Name(f.judge(ctx, pool, c), 0); err != nil && !errors.As(err, &stop) {
		return nil, err
	}
	return stop, nil
}

// judge is Judge without the name.
func (f *Found) judge(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	rec := f.Record
	first := rec == nil && f.View == nil || rec != nil && rec.State == StateCreating && !rec.Used
	tables, err := publication.FindTables(ctx, pool, c, first)
	if err == nil {
		c.Tables = tables
		err = Refusal(ctx, pool, c, f)
	}
	if err == nil && rec != nil {
		f.ID = digest(f.ID, rec.Epoch)
	}
	return err
}
