// What there is to recover: the slot that is lost, or a gap that was accepted. Everything else is a
// sentence and exit 2.

package recovery

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// task is what a run has to copy.
type task struct {
	lost bool // a new slot is made
	// the system whose deferred events are sent here from now on; "", or this one: there is none
	movedFrom string
	// of an accepted gap: what transactions from this one on wrote the slot sends; 0: no bound
	until int64
	// The gap in the WAL, as far as it is known: for the report, no row is chosen by it.
	fromLSN, untilLSN pglogrepl.LSN
	gap               int64 // the id of the accepted gap; 0: the slot is lost
	incarnation       int64 // of the gap
	later             int64 // accepted gaps that are left to the next run
}

// findTask finds out what to do, or why there is nothing.
func (r *run) findTask(ctx context.Context, rec *slot.Record, view *slot.View) error {
	c := r.c
	switch {
	case rec == nil:
		return usage(fmt.Sprintf("there is nothing to recover: no relay has used slot %q in this database", c.Slot),
			"for rows from before the first slot run `cdc-relay init --backfill`")
	case rec.State == slot.StateTakeover:
		return usage(fmt.Sprintf("the takeover by slot %q from slot %q is not complete", c.Slot, rec.TookFrom),
			"finish it, or give it up with `cdc-relay teardown --yes`")
	case rec.State == slot.StateCreating && !rec.Used:
		return usage(fmt.Sprintf("there is nothing to recover: slot %q was never in use", c.Slot), "for rows from before it run `cdc-relay init --backfill`")
	case view != nil && view.NotOurs(r.id.Database) != "":
		return usage(fmt.Sprintf("slot %q %s: recover does not touch it", c.Slot, view.NotOurs(r.id.Database)), "correct source.slot, or choose another one")
	case view != nil && view.Active() && !(rec.State == slot.StateCreating && view.HalfMade()):
		return usage(fmt.Sprintf("slot %q is in use by %s: recover runs while no relay does", c.Slot, view.HolderName()), "stop every relay of this slot, and run it again")
	}
	lost, err := r.isLost(ctx, rec, view)
	if err != nil {
		return err
	}
	if err := r.checkServer(rec); err != nil && lost {
		return err
	}
	if r.was, err = rec.SentBefore(ctx, r.pool, r.id); err != nil {
		return err
	}
	r.restored = rec.Restored || rec.SystemID != r.id.SystemID
	if lost {
		r.task = task{lost: true, movedFrom: rec.SystemID, fromLSN: rec.Reported}
		return r.checkAccepted(ctx, rec)
	}
	return r.findGap(ctx, rec, view)
}

// isLost reports whether nothing more can be read from the slot that the record describes.
//
// A slot that somebody else has created again is not lost: it has what was committed since, also
// rows that are deleted by now. An operator accepts it, and then its gap is recovered.
func (r *run) isLost(ctx context.Context, rec *slot.Record, view *slot.View) (bool, error) {
	if view == nil || rec.State == slot.StateCreating {
		return true, nil
	}
	why, err := slot.CannotBeReadOn(ctx, r.pool, r.c, r.id, rec, view)
	return why != "", err
}

// checkServer wants an operator's word when the slot was read from another server, or on another
// timeline of it: only he knows whether this one has taken its place.
func (r *run) checkServer(rec *slot.Record) error {
	moved := rec.OfOther(r.id)
	switch {
	case moved && !r.opt.SameData:
		return usage(fmt.Sprintf("slot %q was read from system %s on timeline %d, and this is system %s on timeline %d", r.c.Slot, rec.SystemID, rec.Timeline, r.id.SystemID, r.id.Timeline),
			"if this server goes on with the same data, add --same-data, which has its deferred events sent too; if it is a copy, see `cdc-relay check`")
	case !moved && r.opt.SameData:
		return usage("--same-data is for another server than the one that the slot was read from, and this is that one", "leave it out")
	}
	return nil
}

// checkAccepted wants a gap of a slot that was accepted: a copy has none.
func (r *run) checkAccepted(ctx context.Context, rec *slot.Record) error {
	var open int64
	var at pglogrepl.LSN
	err := r.pool.QueryRow(ctx, `SELECT count(*), coalesce(min(from_lsn), '0/0')
		FROM cdc_relay.gap WHERE slot = $1 AND system_id = $2 AND recovered_at IS NULL AND until_xid IS NULL`, r.c.Slot, r.id.SystemID).Scan(&open, &at)
	if err != nil {
		return fmt.Errorf("read cdc_relay.gap: %w", err)
	}
	if open == 0 && rec.State == slot.StateAdopt && !rec.OfOther(r.id) {
		return usage(fmt.Sprintf("there is nothing to recover: slot %q is accepted without a gap, as that of a copy is, whose original sends what was committed before", r.c.Slot),
			"start the relay, which makes a new slot")
	}
	if open > 0 {
		r.task.fromLSN = at
	}
	return nil
}

// findGap finds the oldest gap that an operator has accepted and nobody has recovered.
func (r *run) findGap(ctx context.Context, rec *slot.Record, view *slot.View) error {
	c := r.c
	if r.opt.SameData {
		return usage("--same-data is for a slot that is lost", "leave it out")
	}
	if rec.State == slot.StateAdopt {
		return usage(fmt.Sprintf("slot %q is accepted, and no relay has used it since", c.Slot),
			"start the relay once, which begins where the slot is, and stop it; then run `cdc-relay recover`")
	}
	found, err := slot.Examine(ctx, r.pool, c, r.id)
	if err != nil {
		return err
	}
	stop, err := found.Judge(ctx, r.pool, c)
	switch {
	case err != nil:
		return err
	case stop != nil:
		return usage("the slot is not lost, but a relay does not use it: "+stop.What, stop.Fix)
	}
	t := &r.task
	err = r.pool.QueryRow(ctx, `SELECT g.id, g.incarnation, g.until_xid::text::bigint, coalesce(g.from_lsn, '0/0'), coalesce(g.until_lsn, '0/0'), count(*) OVER () - 1
		FROM cdc_relay.gap g WHERE g.slot = $1 AND g.system_id = $2 AND g.recovered_at IS NULL AND g.until_xid IS NOT NULL ORDER BY g.id LIMIT 1`,
		c.Slot, r.id.SystemID).Scan(&t.gap, &t.incarnation, &t.until, &t.fromLSN, &t.untilLSN, &t.later)
	if source.IsNoRows(err) {
		return usage(fmt.Sprintf("there is nothing to recover: slot %q is in order, and no accepted gap is open", c.Slot), "")
	}
	if err != nil {
		return fmt.Errorf("read cdc_relay.gap: %w", err)
	}
	return r.checkEnded(ctx)
}

// checkEnded wants all transactions of this database to have ended that began before an accepted
// gap ended. Of such a one the slot may send nothing, since it wrote while the publication did not
// have the table, and its rows would not be seen yet. Each that writes holds the lock of its own
// id, which every role may see.
func (r *run) checkEnded(ctx context.Context) error {
	var open bool
	err := r.pool.QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND datname = current_database() AND age(l.transactionid) > age($1::text::xid))
		OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database() AND age(transaction) > age($1::text::xid))`,
		strconv.FormatUint(uint64(uint32(r.task.until)), 10)).Scan(&open)
	if err != nil {
		return fmt.Errorf("read which transactions are open: %w", err)
	}
	if !open {
		return nil
	}
	list, err := source.OpenTransactions(ctx, r.pool, true)
	if err != nil {
		return err
	}
	return usage("transactions that began before the gap ended are still open, and may have rows of it: "+source.OpenText(list), source.EndOpen(list)+"; then run it again")
}
