// What Check asks about publication and slot.

package replication

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func (k *checker) slot(ctx context.Context, rec *record) {
	slot, err := readSlot(ctx, k.pool, k.c.Slot)
	if err != nil {
		k.add("slot", "", err)
		return
	}
	var sent sends
	there, err := publicationExists(ctx, k.pool, k.c)
	if err == nil && !there && slot == nil && rec == nil {
		k.missing("publication", k.c.Publication+" is not there yet")
	} else {
		if err == nil {
			sent, err = checkPublication(ctx, k.pool, k.c, rec.sends())
		}
		k.add("publication", k.c.Publication, err)
		if err == nil {
			k.otherTables(ctx, sent.after(rec.sends()))
		}
	}
	readable := k.readable(ctx, slot != nil)
	switch {
	case rec != nil && rec.State == stateTakeover:
		k.add("slot", "", notTaken(k.c, rec))
	case slot == nil && rec == nil:
		k.missing("slot", k.c.Slot+" is not there yet")
		if readable {
			k.rows(ctx)
		}
	case slot == nil:
		k.add("slot", "", slotLost(k.c, fmt.Sprintf("slot %q no longer exists", k.c.Slot), "find and re-send what is missing"+adoptHint(k.c)))
	default:
		id := identity{Database: slot.Database}
		if rec != nil {
			id.SystemID, id.Timeline = rec.SystemID, rec.Timeline
		}
		if conn, connErr := connectStream(ctx, k.c); connErr == nil {
			if real, idErr := identify(ctx, conn); idErr == nil {
				id = real
			}
			closeStream(conn)
		}
		accepted := rec != nil && rec.State == stateAdopt // the next start takes it, whatever it was
		if accepted {
			rec = nil
		}
		var err error
		switch {
		case rec == nil && !accepted:
			err = unknownSlot(k.c, slot, id)
		default:
			err = checkIdentity(k.c, rec, slot, id)
		}
		switch {
		case err != nil:
		case rec != nil:
			err = lookAtPosition(ctx, k.pool, k.c, slot)
		case slot.ActivePID != 0 && !slot.heldByRelay():
			err = held(k.c, slot)
		}
		detail := fmt.Sprintf("%s at %s, %s behind, wal_status %s", k.c.Slot, slot.ConfirmedFlush,
			bytesText(uint64(slot.Current)-uint64(slot.ConfirmedFlush)), slot.WALStatus)
		if accepted {
			detail += "; accepted as it is: what was committed before that is not sent"
		}
		k.add("slot", detail, err)
		k.tookOver(ctx, rec)
	}
}

// tookOver is about the slot whose place ours has taken: somebody may read it again, or nobody ever
// will.
func (k *checker) tookOver(ctx context.Context, rec *record) {
	if rec == nil || rec.TookUntil == 0 {
		return
	}
	const name = "slot before"
	old, err := readSlot(ctx, k.pool, rec.TookFrom)
	switch {
	case k.unasked(name, err) || old == nil:
	case old.ActivePID != 0:
		k.warn(name, fmt.Sprintf("slot %s, whose place %s has taken, is in use again by %s: what that sends the relay sends too", rec.TookFrom, k.c.Slot, old.holder()), "stop that program")
	default:
		k.warn(name, fmt.Sprintf("slot %s, whose place %s has taken, is still there and keeps WAL: the server has written %s since", rec.TookFrom, k.c.Slot, bytesText(uint64(old.Current)-uint64(old.Restart))),
			fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", quoteText(rec.TookFrom)))
	}
}

// rows says beforehand what the first start would ask.
func (k *checker) rows(ctx context.Context) {
	for _, t := range k.c.Tables {
		var some bool
		if err := k.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+quoteTable(t)+")").Scan(&some); err != nil {
			k.add("rows", "", fmt.Errorf("read %s.%s: %w", t.Schema, t.Name, err))
			return
		}
		if some {
			k.add("rows", "", &outbox.Stop{
				What: fmt.Sprintf("%s.%s already has rows; a new slot sends only what is committed from then on", t.Schema, t.Name),
				Mend: "cdc-relay init --no-backfill, which leaves these rows unsent; or empty the table",
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
	mend := "cdc-relay init"
	if name != "schema" {
		mend = correctName(name)
	}
	k.fail(name, detail+" and source.create is false", mend)
}

// otherTables names what the publication sends next to the configured tables.
func (k *checker) otherTables(ctx context.Context, sent sends) {
	b, err := sent.lookAtOthers(ctx, k.pool, k.c)
	if err != nil {
		k.add("other tables", "", err)
		return
	}
	if len(b.foreign) > 0 {
		k.add("other tables", "listed by the publication and not relayed: "+strings.Join(b.foreign, ", "), nil)
	}
	for _, stop := range b.stops {
		k.add("not configured", "", stop)
	}
}
