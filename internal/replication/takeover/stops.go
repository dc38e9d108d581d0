// The Stops of a takeover: why it cannot begin, continue or complete.

package takeover

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// checkSlots returns why the slot From cannot be replaced, or why ours cannot replace it.
func (t *Takeover) checkSlots(rec *slot.Record, theirs *slot.View) error {
	if rec != nil && rec.State == slot.StateTakeover && rec.TookFrom != t.Opt.From {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q replaces slot %q, not %q", t.C.Slot, rec.TookFrom, t.Opt.From),
			"--from-slot "+rec.TookFrom+"; or begin again: cdc-relay teardown --yes")
	}
	if t.completed(rec) {
		return nil
	}
	if rec != nil && rec.State != slot.StateTakeover {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q is already used by a relay", t.C.Slot),
			"choose another source.slot for the takeover")
	}
	if theirs == nil && rec == nil {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q does not exist", t.Opt.From), "SELECT slot_name, plugin, active FROM pg_replication_slots")
	}
	if theirs == nil {
		return t.gap("no longer exists", 0)
	}
	switch {
	case theirs.Type != "logical":
		return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q is a %s slot: it has no transactions to continue with", t.Opt.From, theirs.Type), "name a logical slot of this database")
	case theirs.Database != t.ID.Database:
		return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q belongs to database %q, not %q", t.Opt.From, theirs.Database, t.ID.Database), "correct source.url or --from-slot")
	}
	return nil
}

// checkOnlyTakeover makes sure that no other relay replaces that slot for one of our tables: both
// relays would publish its rows.
func (t *Takeover) checkOnlyTakeover(ctx context.Context, db source.Querier) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var other string
	err := db.QueryRow(ctx, `SELECT slot FROM cdc_relay.slots WHERE slot <> $1 AND took_from = $2 AND sends->'tables' ?| $3::text[] ORDER BY slot LIMIT 1`,
		t.C.Slot, t.Opt.From, t.C.QuotedTables()).Scan(&other)
	if source.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cdc_relay.slots: %w", err)
	}
	return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q already replaces slot %q with the same tables: both relays would publish their rows", other, t.Opt.From),
		fmt.Sprintf("use source.slot: %s; or give that relay up first: cdc-relay teardown --yes, with its configuration", other))
}

// checkDrop returns why the slot must not be dropped: it is not the one that was replaced, or it is
// still needed.
func (t *Takeover) checkDrop(ctx context.Context, theirs *slot.View) error {
	var why string
	fix := source.DropSlotHint(t.Opt.From)
	switch {
	case theirs.Type != "logical":
		why, fix = fmt.Sprintf("is a %s slot now", theirs.Type), "leave it to its program: there is nothing more to do"
	case theirs.Database != t.ID.Database:
		why = fmt.Sprintf("is a slot of database %q now", theirs.Database)
		fix = "leave it to its program: there is nothing more to do; what waits in it is shown in that database alone"
	case theirs.ConfirmedFlush < t.state.Confirmed:
		// where it stood at the end; after a crash of the server it may be the same one
		why = fmt.Sprintf("stands at %s, below %s, where its place was taken", theirs.ConfirmedFlush, t.state.Confirmed)
	default:
		rec, err := slot.ReadRecord(ctx, t.Pool, t.Opt.From)
		if err != nil {
			return err
		}
		if rec == nil {
			return nil
		}
		why = "is now used by a relay"
	}
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("the takeover is complete, but slot %q %s: it may be another one", t.Opt.From, why), fix)
}

// gap is the Stop of a takeover in which rows may be missing: the other slot will never reach our
// start.
func (t *Takeover) gap(why string, from pglogrepl.LSN) *event.Stop {
	missing := "what was committed before " + t.start() + " and not delivered by then is no longer in any slot"
	if from != 0 {
		missing = fmt.Sprintf("what was committed between %s and %s may be missing", from, t.start())
	}
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q %s: %s", t.Opt.From, why, missing),
		fmt.Sprintf("find and re-send what is missing; to go on: %s (slot %q sends what was committed from its start on)", source.AcceptCommand, t.C.Slot))
}

// beyond is the Stop for a position that is higher than any program can have sent: skipping to it
// would lose everything that is committed until then.
func (t *Takeover) beyond(theirs *slot.View) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q says that %s is confirmed, and the server's WAL ends at %s: how far its program has sent is not known",
		t.Opt.From, theirs.ConfirmedFlush, theirs.Current),
		fmt.Sprintf("stop that program; then go on: %s (slot %q sends all that was committed from its start, %s, on)", source.AcceptCommand, t.C.Slot, t.start()))
}

// start describes our slot's start.
func (t *Takeover) start() string {
	if t.state.Start == 0 {
		return fmt.Sprintf("the start of slot %q", t.C.Slot)
	}
	return t.state.Start.String()
}

// unfinished is the Stop when the wait ends before the takeover is complete.
func (t *Takeover) unfinished() *event.Stop {
	s := t.state
	again := "; then run this again"
	what := fmt.Sprintf("not complete: slot %q is active for %s and has passed the start of slot %q, %s", s.From, s.Holder, s.Slot, s.Start)
	fix := "stop that program" + again
	switch {
	case !s.Passed && s.Active:
		what = fmt.Sprintf("not complete: slot %q stands at %s, below the start of slot %q, %s", s.From, s.Confirmed, s.Slot, s.Start)
		fix = fmt.Sprintf("leave the program that reads it (%s) running until it has confirmed an event that was committed after that", s.Holder) + again
	case !s.Passed:
		what = fmt.Sprintf("not complete: slot %q stands at %s, below the start of slot %q, %s, and nobody reads it: what was committed in between is in it alone", s.From, s.Confirmed, s.Slot, s.Start)
		fix = "start the program that reads it, until it has confirmed an event that was committed after that" + again
	}
	return source.TakeoverStop(event.ExitOperator, what, fix)
}

func (t *Takeover) inUseAgain(theirs *slot.View) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("the takeover is complete, but slot %q is in use again by %s: the relay sends the same events", t.Opt.From, theirs.HolderName()),
		"stop that program; then run this again to drop its slot")
}

func tornDown(c *source.Config) error {
	return errors.New("the takeover by slot " + source.QuoteName(c.Slot) + " was torn down in the meantime")
}
