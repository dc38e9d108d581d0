package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// What Check says of another program's slot: one that the relay will go on with, and one whose place its own takes.

// adoption is about a slot by our name that no relay has used.
func (k *checker) adoption(ctx context.Context, slot *slotView, sent sends) {
	k.add("adoption", fmt.Sprintf("no relay has used slot %s yet (pgoutput, made by hand or by another program): the relay goes on from where it stands. What was committed before %s is not sent",
		slot.Name, slot.ConfirmedFlush), nil)
	const name, debezium = "may arrive twice", "Debezium confirms what it published until its last flush, every offset.flush.interval.ms (60 s by default) and when it is stopped in good order; " +
		"then it is what was on its way, and the last transaction at least, unless heartbeat.interval.ms is set and nothing is written at that moment: then none"
	behind := bytesText(uint64(slot.Current) - uint64(slot.ConfirmedFlush))
	if slot.ActivePID != 0 {
		k.add(name, fmt.Sprintf("if %s is killed: at most the events of the %s of WAL after %s, those that it has published since it confirmed that. %s",
			slot.holder(), behind, slot.ConfirmedFlush, debezium), nil)
		return
	}
	stopped, waiting, twice, err := k.waiting(ctx, slot, sent)
	since := ""
	if stopped != nil {
		since = " and were committed before it was let go at " + stopped.UTC().Format("2006-01-02 15:04:05.000Z")
	}
	switch {
	case err != nil:
		k.add(name, fmt.Sprintf("at most the events of the %s of WAL after %s, which were not counted (%s), and of them those that the other program has published and not confirmed. %s",
			behind, slot.ConfirmedFlush, oneLine{err}, debezium), nil)
	default:
		k.add(name, fmt.Sprintf("at most %d of the %d events that wait in the slot: those that the other program has published and not confirmed%s. %s",
			twice, waiting, since, debezium), nil)
	}
}

// cheap is how much WAL may be read to count what waits: less than a second's work.
const cheap = 64 << 20

// waiting counts the events in a slot that nobody holds, and those among them that were committed before it was let go, if
// the server knows when that was (PostgreSQL 17). Nothing is taken from the slot.
func (k *checker) waiting(ctx context.Context, slot *slotView, sent sends) (stopped *time.Time, all, before int, err error) {
	if size := uint64(slot.Current) - uint64(slot.Restart); size > cheap {
		return nil, 0, 0, fmt.Errorf("the slot reads %s", bytesText(size))
	}
	err = k.pool.QueryRow(ctx, `SELECT (to_jsonb(s)->>'inactive_since')::timestamptz FROM pg_replication_slots s WHERE slot_name = $1`, slot.Name).Scan(&stopped)
	if err != nil {
		return nil, 0, 0, err
	}
	if sent, err = sent.withPartitions(ctx, k.pool); err != nil {
		return nil, 0, 0, err
	}
	rows, err := k.pool.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, $2, NULL, 'proto_version', '1', 'publication_names', $3, 'messages', 'true')`,
		slot.Name, slot.Current, quoteName(k.c.Publication))
	if err != nil {
		return nil, 0, 0, err
	}
	decoder := decode.New(decode.Config{Tables: sent.ours(k.c.Tables), Messages: k.c.Messages, Columns: k.c.Columns})
	var (
		frame     []byte
		msg       decode.Message
		committed time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&frame}, func() error {
		if err := decoder.Decode(frame, &msg); err != nil {
			return err
		}
		switch msg.Kind {
		case decode.Begin:
			committed = msg.CommitTime
		case decode.Row:
			all++
			if stopped == nil || !committed.After(*stopped) {
				before++
			}
		default:
		}
		return nil
	})
	return stopped, all, before, err
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
