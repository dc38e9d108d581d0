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
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// checkSlot tests publication and slot. known says whether the schema cdc_relay could be read, in
// which the slot's record is.
func (c *checker) checkSlot(ctx context.Context, rec *slot.Record, known bool) {
	view, err := slot.ReadView(ctx, c.pool, c.cfg.Slot)
	if err != nil {
		c.addResult("slot", "", err)
		return
	}
	var sent schema.Sends
	there, err := schema.PublicationExists(ctx, c.pool, c.cfg)
	if err == nil && !there && view == nil && rec == nil {
		c.addMissing("publication", c.cfg.Publication+" does not exist yet", schema.MayCreatePublication(ctx, c.pool, c.cfg))
	} else {
		if err == nil {
			sent, err = schema.CheckPublication(ctx, c.pool, c.cfg, rec.Remembered())
		}
		c.addResult("publication", c.cfg.Publication, err)
		if err == nil {
			c.checkOtherTables(ctx, sent.AddRemembered(rec.Remembered()))
		}
	}
	if rec != nil && rec.State == slot.StateAdopt {
		if err := slot.CheckLeftOut(ctx, c.pool, c.cfg, rec.Sends); err != nil {
			c.addResult("not configured", "", err)
		}
	}
	readable := c.checkReadable(ctx, view != nil)
	switch {
	case !known:
		c.addWarning("slot", "cannot be checked: its record is in the schema cdc_relay, which cannot be read", "do what the line schema says")
	case rec != nil && rec.State == slot.StateTakeover:
		c.addResult("slot", "", slot.TakeoverUnfinishedStop(c.cfg, rec))
	case view == nil && rec == nil:
		c.addMissing("slot", c.cfg.Slot+" does not exist yet", nil)
		if readable {
			c.checkRows(ctx)
		}
	case rec != nil && rec.State == slot.StateCreating && rec.Used:
		c.addResult("slot", "", slot.UnfinishedStop(c.cfg, view))
	case view == nil && rec.State == slot.StateCreating:
		c.addMissing("slot", c.cfg.Slot+" does not exist yet, and its creation was interrupted", nil)
	case view == nil && rec.State == slot.StateAdopt && !rec.IsOfOtherServer(c.serverIdentity(rec)) && !c.cfg.Create:
		c.addFailure("slot", c.cfg.Slot+" does not exist, its loss was accepted, and source.create is false", source.MakeSlotSQL(c.cfg))
	case view == nil && rec.State == slot.StateAdopt && !rec.IsOfOtherServer(c.serverIdentity(rec)):
		c.addMissing("slot", c.cfg.Slot+" does not exist, and its loss was accepted", nil)
	case view == nil:
		c.addResult("slot", "", slot.MissingStop(c.cfg, rec, c.id))
	case view.HalfMade():
		stop := slot.BeingMadeStop(ctx, c.pool, view)
		c.addWarning("slot", stop.What, stop.Fix)
	default:
		// the next start uses it as it is
		accepted := rec != nil && rec.State == slot.StateAdopt && !rec.IsOfOtherServer(c.serverIdentity(rec))
		detail := fmt.Sprintf("%s at %s, %s behind, wal_status %s", c.cfg.Slot, view.ConfirmedFlush,
			source.BytesText(uint64(view.Current)-uint64(view.ConfirmedFlush)), view.WALStatus)
		if accepted {
			detail += "; accepted as it is: what was committed before that is not sent"
		}
		c.addResult("slot", detail, c.whyUnusable(ctx, rec, view, accepted))
		if !accepted {
			c.checkReplacedSlot(ctx, rec)
		}
	}
	c.checkOpenTransactions(ctx, view)
}

// checkOpenTransactions names the transactions that the slot's creation would wait for, or for
// which it keeps WAL that is settled.
func (c *checker) checkOpenTransactions(ctx context.Context, view *slot.View) {
	const name = "open transactions"
	list, err := view.HeldBy(ctx, c.pool)
	if view == nil {
		list, err = source.LongTransactions(ctx, c.pool, 0)
	}
	switch {
	// a half-made slot is named above
	case c.warnUnchecked(name, err) || len(list) == 0 || view != nil && view.HalfMade():
	case view == nil:
		c.addWarning(name, "creating the slot waits until these end: "+source.OpenTransactionsText(list), source.EndTransactionsHint(list))
	default:
		c.addWarning(name, fmt.Sprintf("the slot keeps %s of WAL, all of it settled, until these end: %s", source.BytesText(view.HeldBytes()), source.OpenTransactionsText(list)), source.EndTransactionsHint(list))
	}
}

// whyUnusable returns why the next start refuses the slot; nil: it does not.
func (c *checker) whyUnusable(ctx context.Context, rec *slot.Record, view *slot.View, accepted bool) error {
	id := c.serverIdentity(rec)
	if rec == nil {
		return slot.UnknownStop(c.cfg, view, id)
	}
	if accepted {
		err := slot.CheckIdentity(c.cfg, nil, view, id)
		if err == nil && view.Active() && !view.ReadByRelay() {
			return slot.InUseError(c.cfg, view)
		}
		return err
	}
	if err := slot.CheckUse(ctx, c.pool, c.cfg, rec, view, id); err != nil {
		return err
	}
	return slot.CheckRecordedPosition(ctx, c.pool, c.cfg, view)
}

// serverIdentity is the server's identity. If it could not be read, which is a finding of its own,
// the recorded one takes its place.
func (c *checker) serverIdentity(rec *slot.Record) slot.Identity {
	id := c.id
	if id.SystemID == "" {
		id.Database = c.database
		if rec != nil {
			id.SystemID, id.Timeline = rec.SystemID, rec.Timeline
		}
	}
	return id
}

// checkReplacedSlot warns of the slot that ours replaced in a takeover: a program may read it
// again, or it is left unused and retains WAL.
func (c *checker) checkReplacedSlot(ctx context.Context, rec *slot.Record) {
	if rec == nil || rec.TookUntil == 0 {
		return
	}
	const name = "slot before"
	old, err := slot.ReadView(ctx, c.pool, rec.TookFrom)
	switch {
	case c.warnUnchecked(name, err) || old == nil:
	case old.Active():
		c.addWarning(name, fmt.Sprintf("slot %s, which %s replaced, is in use again by %s: the relay sends the same events", rec.TookFrom, c.cfg.Slot, old.HolderName()), "stop that program")
	default:
		c.addWarning(name, fmt.Sprintf("slot %s, which %s replaced, still exists and retains WAL: the server has written %s since", rec.TookFrom, c.cfg.Slot, source.BytesText(uint64(old.Current)-uint64(old.Restart))),
			fmt.Sprintf("slot %s has everything since; once you will not go back to that program: SELECT pg_drop_replication_slot(%s)", c.cfg.Slot, source.QuoteText(rec.TookFrom)))
	}
}

// checkRows tests whether the tables have rows, as the first start does.
func (c *checker) checkRows(ctx context.Context) {
	for _, t := range c.cfg.Tables {
		var some bool
		err := sent.ReadTable(ctx, c.pool, source.QuoteTable(t), func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+source.QuoteTable(t)+")").Scan(&some)
		})
		if err != nil {
			c.addResult("rows", "", fmt.Errorf("read %s.%s: %w", t.Schema, t.Name, err))
			return
		}
		if some {
			c.addResult("rows", "", &event.Stop{
				What: fmt.Sprintf("%s.%s already has rows; a new slot sends only what is committed from then on", t.Schema, t.Name),
				Fix:  "let what has sent these rows until now deliver them; then run `cdc-relay init --no-backfill`, which leaves them unsent",
			})
			return
		}
	}
}

// addMissing reports what the first start creates, if the configuration lets it and this role may:
// refused is why not.
func (c *checker) addMissing(name, detail string, refused error) {
	switch {
	case !c.cfg.Create && name == "schema":
		c.addFailure(name, detail+" and source.create is false", "cdc-relay init")
	case !c.cfg.Create:
		c.addFailure(name, detail+" and source.create is false", source.NameHint(name))
	case refused != nil:
		c.addResult(name, "", refused)
	default:
		c.addWarning(name, detail+"; the first start creates it", "cdc-relay init")
	}
}

// checkOtherTables reports what the publication sends in addition to the configured tables.
func (c *checker) checkOtherTables(ctx context.Context, sent schema.Sends) {
	foreign, stops, err := sent.ReadOthers(ctx, c.pool, c.cfg)
	if err != nil {
		c.addResult("other tables", "", err)
		return
	}
	if len(foreign) > 0 {
		c.addResult("other tables", "listed by the publication and not relayed: "+strings.Join(foreign, ", "), nil)
	}
	for _, stop := range stops {
		c.addResult("not configured", "", stop)
	}
}

// checkGaps names the accepted gaps of the slot whose rows may still have to be sent.
func (c *checker) checkGaps(ctx context.Context) {
	const name = "accepted gap"
	rows, err := c.pool.Query(ctx, `SELECT g.id, g.accepted_at, g.reason, count(*) OVER () FROM cdc_relay.gap g JOIN cdc_relay.slots s ON s.slot = g.slot AND s.system_id = g.system_id
		WHERE g.slot = $1 AND g.recovered_at IS NULL ORDER BY g.id LIMIT 3`, c.cfg.Slot)
	if err != nil {
		c.addResult(name, "", fmt.Errorf("read cdc_relay.gap: %w", err))
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
		c.addWarning(name, fmt.Sprintf("gap %d, accepted at %s (%s): rows of it may never have been sent%s", id, at.UTC().Format(time.RFC3339), reason, more),
			fmt.Sprintf("once the relay was started after that, `cdc-relay resend --gap %d%s` sends what is not known to be sent, also while the relay runs; `cdc-relay resend --gap %[1]d --none --reason TEXT` closes it by your word", id, c.orderFlag))
	}
	if err := rows.Err(); err != nil {
		c.addResult(name, "", fmt.Errorf("read cdc_relay.gap: %w", err))
	}
}

// RelayRuns reports whether a relay reads the slot now; false, too: that cannot be asked.
func RelayRuns(ctx context.Context, c source.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, questionBound)
	defer cancel()
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return false
	}
	defer source.ClosePool(pool)
	view, err := slot.ReadView(ctx, pool, c.Slot)
	return err == nil && view != nil && view.Active() && view.ReadByRelay()
}
