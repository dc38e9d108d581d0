// Tests of publication and slot.

package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func (k *checker) slot(ctx context.Context, rec *slot.Record) {
	view, err := slot.Read(ctx, k.pool, k.c.Slot)
	if err != nil {
		k.add("slot", "", err)
		return
	}
	var sent publication.State
	there, err := publication.Exists(ctx, k.pool, k.c)
	if err == nil && !there && view == nil && rec == nil {
		k.missing("publication", k.c.Publication+" does not exist yet")
	} else {
		if err == nil {
			sent, err = publication.Check(ctx, k.pool, k.c, rec.Remembered())
		}
		k.add("publication", k.c.Publication, err)
		if err == nil {
			k.otherTables(ctx, sent.After(rec.Remembered()))
		}
	}
	readable := k.readable(ctx, view != nil)
	switch {
	case rec != nil && rec.State == slot.StateTakeover:
		k.add("slot", "", slot.TakeoverUnfinished(k.c, rec))
	case view == nil && rec == nil:
		k.missing("slot", k.c.Slot+" does not exist yet")
		if readable {
			k.rows(ctx)
		}
	case view == nil:
		k.add("slot", "", source.SlotLost(k.c, fmt.Sprintf("slot %q no longer exists", k.c.Slot), "find and re-send what is missing"+source.AdoptHint(k.c)))
	default:
		accepted := rec != nil && rec.State == slot.StateAdopt // the next start uses it as it is
		detail := fmt.Sprintf("%s at %s, %s behind, wal_status %s", k.c.Slot, view.ConfirmedFlush,
			source.BytesText(uint64(view.Current)-uint64(view.ConfirmedFlush)), view.WALStatus)
		if accepted {
			detail += "; accepted as it is: what was committed before that is not sent"
		}
		k.add("slot", detail, k.usable(ctx, rec, view, accepted))
		if !accepted {
			k.tookOver(ctx, rec)
		}
	}
}

// usable is why the next start refuses the slot; nil: it does not.
func (k *checker) usable(ctx context.Context, rec *slot.Record, view *slot.View, accepted bool) error {
	id := k.id
	if id.SystemID == "" { // that it is not known is a finding of its own
		id.Database = view.Database
		if rec != nil {
			id.SystemID, id.Timeline = rec.SystemID, rec.Timeline
		}
	}
	if rec == nil {
		return slot.UnknownSlot(k.c, view, id)
	}
	if accepted {
		err := slot.CheckIdentity(k.c, nil, view, id)
		if err == nil && view.Active() && !view.ReadByRelay() {
			return slot.InUse(k.c, view)
		}
		return err
	}
	if err := slot.CheckIdentity(k.c, rec, view, id); err != nil {
		return err
	}
	return slot.CheckRecordedPosition(ctx, k.pool, k.c, view)
}

// tookOver reports about the slot that ours replaced: a program may read it again, or it may be
// left unused and retain WAL.
func (k *checker) tookOver(ctx context.Context, rec *slot.Record) {
	if rec == nil || rec.TookUntil == 0 {
		return
	}
	const name = "slot before"
	old, err := slot.Read(ctx, k.pool, rec.TookFrom)
	switch {
	case k.cannotAsk(name, err) || old == nil:
	case old.Active():
		k.warn(name, fmt.Sprintf("slot %s, which %s replaced, is in use again by %s: the relay sends the same events", rec.TookFrom, k.c.Slot, old.HolderName()), "stop that program")
	default:
		k.warn(name, fmt.Sprintf("slot %s, which %s replaced, still exists and retains WAL: the server has written %s since", rec.TookFrom, k.c.Slot, source.BytesText(uint64(old.Current)-uint64(old.Restart))),
			fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", source.QuoteText(rec.TookFrom)))
	}
}

// rows makes the first start's check for existing rows in advance.
func (k *checker) rows(ctx context.Context) {
	for _, t := range k.c.Tables {
		var some bool
		if err := k.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+source.QuoteTable(t)+")").Scan(&some); err != nil {
			k.add("rows", "", fmt.Errorf("read %s.%s: %w", t.Schema, t.Name, err))
			return
		}
		if some {
			k.add("rows", "", &event.Stop{
				What: fmt.Sprintf("%s.%s already has rows; a new slot sends only what is committed from then on", t.Schema, t.Name),
				Fix:  "cdc-relay init --no-backfill, which leaves these rows unsent; or empty the table",
			})
			return
		}
	}
}

func (k *checker) missing(name, detail string) {
	if k.c.Create {
		k.warn(name, detail+"; the first start creates it", "cdc-relay init")
		return
	}
	fix := "cdc-relay init"
	if name != "schema" {
		fix = source.NameHint(name)
	}
	k.fail(name, detail+" and source.create is false", fix)
}

// otherTables reports what the publication sends in addition to the configured tables.
func (k *checker) otherTables(ctx context.Context, sent publication.State) {
	foreign, stops, err := sent.ReadOthers(ctx, k.pool, k.c)
	if err != nil {
		k.add("other tables", "", err)
		return
	}
	if len(foreign) > 0 {
		k.add("other tables", "listed by the publication and not relayed: "+strings.Join(foreign, ", "), nil)
	}
	for _, stop := range stops {
		k.add("not configured", "", stop)
	}
}
