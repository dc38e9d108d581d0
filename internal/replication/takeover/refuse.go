// What keeps a takeover from beginning, from going on, and from its end.

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

// refuse says why From is no slot to take the place of, or ours none to take it.
func (m *Takeover) refuse(rec *slot.Record, theirs *slot.View) error {
	if rec != nil && rec.State == slot.StateTakeover && rec.TookFrom != m.Opt.From {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q takes the place of slot %q, not of %q", m.C.Slot, rec.TookFrom, m.Opt.From),
			"--from-slot "+rec.TookFrom+"; or begin again: cdc-relay teardown --yes")
	}
	if m.completed(rec) {
		return nil
	}
	if rec != nil && rec.State != slot.StateTakeover {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q is a relay's already: it has rows of its own to go on with", m.C.Slot),
			"choose another source.slot for the take-over")
	}
	if theirs == nil && rec == nil {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q does not exist", m.Opt.From), "SELECT slot_name, plugin, active FROM pg_replication_slots")
	}
	if theirs == nil {
		return m.gap("no longer exists", 0)
	}
	switch {
	case theirs.Type != "logical":
		return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q is a %s slot: it says nothing of transactions", m.Opt.From, theirs.Type), "name a logical slot of this database")
	case theirs.Database != m.Id.Database:
		return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q belongs to database %q, not %q", m.Opt.From, theirs.Database, m.Id.Database), "correct source.url or --from-slot")
	}
	return nil
}

// alone makes sure that no other relay takes the place of that slot for one of our tables: both
// would publish it.
func (m *Takeover) alone(ctx context.Context, db source.Querier) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var tables []string
	for _, t := range m.C.Tables {
		tables = append(tables, source.QuoteTable(t))
	}
	var other string
	err := db.QueryRow(ctx, `SELECT slot FROM cdc_relay.slots WHERE slot <> $1 AND took_from = $2 AND sends->'tables' ?| $3::text[] ORDER BY slot LIMIT 1`,
		m.C.Slot, m.Opt.From, tables).Scan(&other)
	if source.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cdc_relay.slots: %w", err)
	}
	return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q takes the place of slot %q already, with the same tables: both relays would publish their rows", other, m.Opt.From),
		fmt.Sprintf("use source.slot: %s; or give that relay up first: cdc-relay teardown --yes, with its configuration", other))
}

// refuseDrop says why the slot that has the name now is not the one whose place was taken, or is
// needed still.
func (m *Takeover) refuseDrop(ctx context.Context, theirs *slot.View) error {
	var why string
	switch {
	case theirs.Type != "logical" || theirs.Database != m.Id.Database:
		why = fmt.Sprintf("is a %s slot of database %q now", theirs.Type, theirs.Database)
	case theirs.ConfirmedFlush < m.state.Confirmed:
		// where it stood at the end; after a crash of the server it may be the same one
		why = fmt.Sprintf("stands at %s, below %s, where its place was taken", theirs.ConfirmedFlush, m.state.Confirmed)
	default:
		rec, err := slot.ReadRecord(ctx, m.Pool, m.Opt.From)
		if err != nil {
			return err
		}
		if rec == nil {
			return nil
		}
		why = "is a relay's now"
	}
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("the take-over is complete, but slot %q %s: it may be another one", m.Opt.From, why),
		fmt.Sprintf("if nobody needs it: SELECT pg_drop_replication_slot(%s)", source.QuoteText(m.Opt.From)))
}

func (m *Takeover) relays() *event.Stop {
	return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q is a relay's: its deferred events would stay behind", m.Opt.From), "leave that relay its slot")
}

// gap is the end of a take-over in which rows may be missing: the other slot will never say that it
// has passed our start.
func (m *Takeover) gap(why string, from pglogrepl.LSN) *event.Stop {
	missing := "what was committed before " + m.start() + " and not delivered by then is no longer in any slot"
	if from != 0 {
		missing = fmt.Sprintf("what was committed between %s and %s may be missing", from, m.start())
	}
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q %s: %s", m.Opt.From, why, missing),
		fmt.Sprintf("find and re-send what is missing%s (slot %q sends what was committed from its start on)", source.AdoptHint(m.C), m.C.Slot))
}

// beyond is for a position that no program can have sent up to: skipping to it would lose what is
// committed until then.
func (m *Takeover) beyond(theirs *slot.View) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q says that %s is confirmed, and the server's WAL ends at %s: how far its program has sent is not known",
		m.Opt.From, theirs.ConfirmedFlush, theirs.Current),
		fmt.Sprintf("stop that program%s (slot %q sends all that was committed from its start, %s, on)", source.AdoptHint(m.C), m.C.Slot, m.start()))
}

// start is our slot's, in words.
func (m *Takeover) start() string {
	if m.state.Start == 0 {
		return fmt.Sprintf("the start of slot %q", m.C.Slot)
	}
	return m.state.Start.String()
}

// unfinished is the end of the wait before the end of the take-over.
func (m *Takeover) unfinished() *event.Stop {
	s := m.state
	again := "; then run this again"
	what := fmt.Sprintf("not complete: slot %q is held by %s and has passed the start of slot %q, %s", s.From, s.Holder, s.Slot, s.Start)
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

func (m *Takeover) inUseAgain(theirs *slot.View) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("the take-over is complete, but slot %q is in use again, by %s: what it sends the relay sends too", m.Opt.From, theirs.HolderName()),
		"stop that program; then run this again to drop its slot")
}

func tornDown(c *source.Config) error {
	return errors.New("the take-over by slot " + source.QuoteName(c.Slot) + " was torn down meanwhile")
}
