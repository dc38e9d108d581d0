package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// What Check says of another program's slot: one that the relay will go on with, and one whose place its own takes.

// adoption is about a slot by our name that no relay has used, or that an operator has accepted as it is.
func (k *checker) adoption(ctx context.Context, slot *slotView, sent sends, accepted bool) {
	why := "no relay has used slot %s yet (pgoutput, made by hand or by another program)"
	if accepted {
		why = "the row of slot %s in cdc_relay.slots says adopt"
	}
	k.add("adoption", fmt.Sprintf(why+": the relay goes on from where it stands. What was committed before %s is not sent",
		slot.Name, slot.ConfirmedFlush), nil)
	if !accepted {
		if err := sent.refuseYounger(ctx, k.pool, k.c, slot, asFoundMend(k.c)); err != nil {
			k.add("rows hidden", "", err)
		}
	}
	k.twice(ctx, slot, slot.ConfirmedFlush, sent)
}

// twice is about what another program has published and not confirmed, of what is in our slot: committed at from or after it.
func (k *checker) twice(ctx context.Context, slot *slotView, from pglogrepl.LSN, sent sends) {
	const name, debezium = "may arrive twice", "Debezium confirms what it published until its last flush, every offset.flush.interval.ms (60 s by default) and when it is stopped in good order; " +
		"then it is what was on its way, and the last transaction at least, unless heartbeat.interval.ms is set and nothing is written at that moment: then none"
	behind := bytesText(uint64(slot.Current) - uint64(from))
	if slot.ActivePID != 0 {
		k.add(name, fmt.Sprintf("if %s is killed: at most the events of the %s of WAL after %s, those that it has published since it confirmed that. %s",
			slot.holder(), behind, from, debezium), nil)
		return
	}
	n, first, last, others, err := k.waiting(ctx, slot, from, sent)
	switch {
	case err != nil:
		k.add(name, fmt.Sprintf("at most the events of the %s of WAL after %s, which were not counted (%s), and of them those that the other program has published and not confirmed. %s",
			behind, from, oneLine{err}, debezium), nil)
	case n == 0:
		k.add(name, "nothing: no event waits in the slot", nil)
	default:
		k.add(name, fmt.Sprintf("at most %d: so many events wait in the slot, committed from %s to %s, and of them those come twice that the other program has published and not confirmed before it was stopped. %s",
			n, first.UTC().Format(time.DateTime), last.UTC().Format(time.DateTime), debezium), nil)
	}
	if err == nil {
		k.strangers(ctx, others, sent)
	}
}

// countable is how much WAL may be read to count what waits: a second's work or two, and no more of it in the server's
// temporary files.
const countable = 256 << 20

// waiting counts the events in a slot that nobody holds whose commit record is at from or after it, committed from first to last. Nothing
// is taken from the slot. (When it was let go would tell more, but pg_replication_slots.inactive_since is then the time of this look, the
// next time that it is asked.)
func (k *checker) waiting(ctx context.Context, slot *slotView, from pglogrepl.LSN, sent sends) (n int, first, last time.Time, others inserts, err error) {
	if size := uint64(slot.Current) - uint64(slot.Restart); size > k.countable {
		return 0, first, last, nil, fmt.Errorf("the slot reads %s", bytesText(size))
	}
	if sent, err = sent.withPartitions(ctx, k.pool); err != nil {
		return 0, first, last, nil, err
	}
	rows, err := k.pool.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, $2, NULL, 'proto_version', '1', 'publication_names', $3, 'messages', 'true')`,
		slot.Name, slot.Current, quoteName(k.c.Publication))
	if err != nil {
		return 0, first, last, nil, err
	}
	decoder := decode.New(decode.Config{Tables: sent.ours(k.c.Tables), Messages: k.c.Messages}) // without extra columns: their values, and the shape of a table, make no difference to a count
	var (
		frame     []byte
		msg       decode.Message
		committed time.Time
		counts    bool
	)
	others = inserts{}
	_, err = pgx.ForEachRow(rows, []any{&frame}, func() error {
		if err := others.note(frame); err != nil {
			return err
		}
		if err := decoder.Decode(frame, &msg); err != nil {
			return err
		}
		switch msg.Kind {
		case decode.Begin:
			committed, counts = msg.CommitTime, msg.Commit >= from
		case decode.Row:
			if !counts {
				break
			}
			if n++; n == 1 {
				first = committed
			}
			last = committed
		default:
		}
		return nil
	})
	return n, first, last, others, err
}

// tookOver is about the slot whose place ours has taken: somebody may read it again, or nobody ever will.
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
