// Tests of publication and slot.

package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// slot tests publication and slot. known says whether the schema cdc_relay could be read, in which
// the slot's record is.
func (c *checker) slot(ctx context.Context, rec *slot.Record, known bool) {
	view, err := slot.Read(ctx, c.pool, c.c.Slot)
	if err != nil {
		c.add("slot", "", err)
		return
	}
	var sent schema.Sends
	there, err := schema.PublicationExists(ctx, c.pool, c.c)
	if err == nil && !there && view == nil && rec == nil {
		c.missing("publication", c.c.Publication+" does not exist yet", schema.MayCreatePublication(ctx, c.pool, c.c))
	} else {
		if err == nil {
			sent, err = schema.CheckPublication(ctx, c.pool, c.c, rec.Remembered())
		}
		c.add("publication", c.c.Publication, err)
		if err == nil {
			c.otherTables(ctx, sent.After(rec.Remembered()))
		}
	}
	if rec != nil && rec.State == slot.StateAdopt {
		if err := slot.CheckLeftOut(ctx, c.pool, c.c, rec.Sends); err != nil {
			c.add("not configured", "", err)
		}
	}
	readable := c.readable(ctx, view != nil)
	switch {
	case !known:
		c.warn("slot", "cannot be checked: its record is in the schema cdc_relay, which cannot be read", "do what the line schema says")
	case rec != nil && rec.State == slot.StateTakeover:
		c.add("slot", "", slot.TakeoverUnfinished(c.c, rec))
	case view == nil && rec == nil:
		c.missing("slot", c.c.Slot+" does not exist yet", nil)
		if readable {
			c.rows(ctx)
		}
	case rec != nil && rec.State == slot.StateCreating && rec.Used:
		c.add("slot", "", slot.Unfinished(c.c, view))
	case view == nil && rec.State == slot.StateCreating:
		c.missing("slot", c.c.Slot+" does not exist yet, and its creation was interrupted", nil)
	case view == nil && rec.State == slot.StateAdopt && !rec.OfOther(c.server(rec)) && !c.c.Create:
		c.fail("slot", c.c.Slot+" does not exist, its loss was accepted, and source.create is false", source.MakeSlotSQL(c.c))
	case view == nil && rec.State == slot.StateAdopt && !rec.OfOther(c.server(rec)):
		c.missing("slot", c.c.Slot+" does not exist, and its loss was accepted", nil)
	case view == nil:
		c.add("slot", "", slot.Missing(c.c, rec, c.id))
	case view.HalfMade():
		stop := slot.BeingMade(ctx, c.pool, view)
		c.warn("slot", stop.What, stop.Fix)
	default:
		// the next start uses it as it is
		accepted := rec != nil && rec.State == slot.StateAdopt && !rec.OfOther(c.server(rec))
		detail := fmt.Sprintf("%s at %s, %s behind, wal_status %s", c.c.Slot, view.ConfirmedFlush,
			source.BytesText(uint64(view.Current)-uint64(view.ConfirmedFlush)), view.WALStatus)
		if accepted {
			detail += "; accepted as it is: what was committed before that is not sent"
		}
		c.add("slot", detail, c.usable(ctx, rec, view, accepted))
		if !accepted {
			c.tookOver(ctx, rec)
		}
	}
	c.openTransactions(ctx, view)
}

// openTransactions names the transactions that the slot's creation would wait for, or for which it
// keeps WAL that is settled.
func (c *checker) openTransactions(ctx context.Context, view *slot.View) {
	const name = "open transactions"
	list, err := view.HeldBy(ctx, c.pool)
	if view == nil {
		list, err = source.LongTransactions(ctx, c.pool, 0)
	}
	switch {
	// a half-made slot is named above
	case c.warnUnchecked(name, err) || len(list) == 0 || view != nil && view.HalfMade():
	case view == nil:
		c.warn(name, "creating the slot waits until these end: "+source.OpenText(list), source.EndOpen(list))
	default:
		c.warn(name, fmt.Sprintf("the slot keeps %s of WAL, all of it settled, until these end: %s", source.BytesText(view.HeldBytes()), source.OpenText(list)), source.EndOpen(list))
	}
}

// usable returns why the next start refuses the slot; nil: it does not.
func (c *checker) usable(ctx context.Context, rec *slot.Record, view *slot.View, accepted bool) error {
	id := c.server(rec)
	if rec == nil {
		return slot.UnknownSlot(c.c, view, id)
	}
	if accepted {
		err := slot.CheckIdentity(c.c, nil, view, id)
		if err == nil && view.Active() && !view.ReadByRelay() {
			return slot.InUse(c.c, view)
		}
		return err
	}
	if err := slot.CheckUse(ctx, c.pool, c.c, rec, view, id); err != nil {
		return err
	}
	return slot.CheckRecordedPosition(ctx, c.pool, c.c, view)
}

// server is the server's identity. That it is not known is a finding of its own: it then counts as
// the recorded one.
func (c *checker) server(rec *slot.Record) slot.Identity {
	id := c.id
	if id.SystemID == "" {
		id.Database = c.database
		if rec != nil {
			id.SystemID, id.Timeline = rec.SystemID, rec.Timeline
		}
	}
	return id
}

// tookOver reports about the slot that ours replaced: a program may read it again, or it may be
// left unused and retain WAL.
func (c *checker) tookOver(ctx context.Context, rec *slot.Record) {
	if rec == nil || rec.TookUntil == 0 {
		return
	}
	const name = "slot before"
	old, err := slot.Read(ctx, c.pool, rec.TookFrom)
	switch {
	case c.warnUnchecked(name, err) || old == nil:
	case old.Active():
		c.warn(name, fmt.Sprintf("slot %s, which %s replaced, is in use again by %s: the relay sends the same events", rec.TookFrom, c.c.Slot, old.HolderName()), "stop that program")
	default:
		c.warn(name, fmt.Sprintf("slot %s, which %s replaced, still exists and retains WAL: the server has written %s since", rec.TookFrom, c.c.Slot, source.BytesText(uint64(old.Current)-uint64(old.Restart))),
			fmt.Sprintf("slot %s has everything since; once you will not go back to that program: SELECT pg_drop_replication_slot(%s)", c.c.Slot, source.QuoteText(rec.TookFrom)))
	}
}

// rows makes in advance the check for existing rows that the first start makes.
func (c *checker) rows(ctx context.Context) {
	for _, t := range c.c.Tables {
		var some bool
		err := tableread.Read(ctx, c.pool, source.QuoteTable(t), func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+source.QuoteTable(t)+")").Scan(&some)
		})
		if err != nil {
			c.add("rows", "", fmt.Errorf("read %s.%s: %w", t.Schema, t.Name, err))
			return
		}
		if some {
			c.add("rows", "", &event.Stop{
				What: fmt.Sprintf("%s.%s already has rows; a new slot sends only what is committed from then on", t.Schema, t.Name),
				Fix:  "let what has sent these rows until now deliver them; then run `cdc-relay init --no-backfill`, which leaves them unsent",
			})
			return
		}
	}
}

// missing reports what the first start creates, if the configuration lets it and this role may:
// refused is why not.
func (c *checker) missing(name, detail string, refused error) {
	switch {
	case !c.c.Create && name == "schema":
		c.fail(name, detail+" and source.create is false", "cdc-relay init")
	case !c.c.Create:
		c.fail(name, detail+" and source.create is false", source.NameHint(name))
	case refused != nil:
		c.add(name, "", refused)
	default:
		c.warn(name, detail+"; the first start creates it", "cdc-relay init")
	}
}

// otherTables reports what the publication sends in addition to the configured tables.
func (c *checker) otherTables(ctx context.Context, sent schema.Sends) {
	foreign, stops, err := sent.ReadOthers(ctx, c.pool, c.c)
	if err != nil {
		c.add("other tables", "", err)
		return
	}
	if len(foreign) > 0 {
		c.add("other tables", "listed by the publication and not relayed: "+strings.Join(foreign, ", "), nil)
	}
	for _, stop := range stops {
		c.add("not configured", "", stop)
	}
}

// gaps names the gaps of the slot that an operator has accepted, and of which it is open whether
// their rows need to be sent.
func (c *checker) gaps(ctx context.Context) {
	const name = "accepted gap"
	rows, err := c.pool.Query(ctx, `SELECT g.id, g.accepted_at, g.reason, count(*) OVER () FROM cdc_relay.gap g JOIN cdc_relay.slots s ON s.slot = g.slot AND s.system_id = g.system_id
		WHERE g.slot = $1 AND g.recovered_at IS NULL ORDER BY g.id LIMIT 3`, c.c.Slot)
	if err != nil {
		c.add(name, "", fmt.Errorf("read cdc_relay.gap: %w", err))
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id, all int64
		var at time.Time
		var reason string
		if err := rows.Scan(&id, &at, &reason, &all); err != nil {
			break
		}
		more := ""
		if all > 1 {
			more = fmt.Sprintf("; %d gaps are open", all)
		}
		c.warn(name, fmt.Sprintf("gap %d, accepted at %s (%s): rows of it may never have been sent%s", id, at.UTC().Format(time.RFC3339), reason, more),
			fmt.Sprintf("once the relay was started after that, `cdc-relay resend --gap %d` sends what is not known to be sent, also while the relay runs; `cdc-relay resend --gap %[1]d --none --reason TEXT` closes it by your word", id))
	}
	if err := rows.Err(); err != nil {
		c.add(name, "", fmt.Errorf("read cdc_relay.gap: %w", err))
	}
}
