// Writing a decision about the slot: the record, the interval that may be missing, the rows of
// another server, and the audit.

package setup

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// writeDecision makes the decision durable, in the caller's transaction. The slot is dropped or
// moved last: everything before it can be undone, and a commit that fails after it leaves a slot
// that is lost or ahead, which is another finding.
func (a *acceptance) writeDecision(ctx context.Context, tx pgx.Tx, reason, what string) error {
	left := false
	switch {
	case a.opt.Delivered == DeliveredAll:
		var err error
		if left, err = a.recordSent(ctx, tx); err != nil {
			return err
		}
	case a.isOtherServer():
		if err := a.moveRows(ctx, tx); err != nil {
			return err
		}
	}
	if err := a.writeAdopt(ctx, tx); err != nil {
		return err
	}
	if err := a.keepGap(ctx, tx, reason, left); err != nil {
		return err
	}
	if err := a.forgetProgress(ctx, tx); err != nil {
		return err
	}
	if err := a.writeAudit(ctx, tx, what); err != nil {
		return err
	}
	a.result.Done = "the next start takes the slot as it is"
	if a.found.View == nil || a.opt.NewSlot {
		a.result.Done = "the next start makes a new slot"
	}
	if a.opt.NewSlot {
		if _, err := tx.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, a.c.Slot); err != nil {
			return fmt.Errorf("drop slot %q: %w", a.c.Slot, err)
		}
	}
	return a.advancePastOriginal(ctx, tx)
}

// writeAdopt sets the record's state, if the record is still what the ID was computed from. The
// decision is one about this server: a copy of the database, or a standby that is promoted before
// the next start, is another finding.
func (a *acceptance) writeAdopt(ctx context.Context, tx pgx.Tx) error {
	rec, id := a.found.Record, a.found.Server
	sql, args := `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation) VALUES ($1, $3, $4, $2, 'adopt', 0)
		ON CONFLICT (slot) DO NOTHING`, []any{a.c.Slot, a.c.Publication, id.SystemID, id.Timeline}
	if rec != nil {
		was, err := rec.SentBefore(ctx, tx, id)
		if err != nil {
			return err
		}
		sql, args = `UPDATE cdc_relay.slots SET state = 'adopt', epoch = epoch + 1, changed_at = now(), system_id = $6, timeline = $7,
				sends = $8, restored = restored OR system_id <> $6
			WHERE slot = $1 AND state = $2 AND incarnation = $3 AND epoch = $4 AND sends::text = $5`,
			[]any{a.c.Slot, rec.State, rec.Incarnation, rec.Epoch, rec.SendsText, id.SystemID, id.Timeline, was}
	}
	tag, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return usageStop(fmt.Sprintf("the record of slot %q was changed meanwhile", a.c.Slot), "run `cdc-relay check`, and accept what it finds then")
	}
	return nil
}

// keepGap stores the interval that may be missing, for recover. A slot that was never used has
// none, and neither has a copy: what was committed before it is the original's to send. A gap that
// has no end yet goes on: the slot was accepted before and has not been in use since.
//
// If all was delivered before the move there is one only if rows are left that may have been
// written since. Where the next start makes the slot, it looks for such rows itself, in the slot's
// snapshot (slot.CreateSlot).
func (a *acceptance) keepGap(ctx context.Context, tx pgx.Tx, reason string, left bool) error {
	rec := a.found.Record
	if rec == nil || !rec.Used || a.opt.Copy || a.opt.Delivered == DeliveredAll && !left {
		return nil
	}
	from, _ := a.found.MissingInterval(reason, 0)
	err := tx.QueryRow(ctx, `WITH open AS (SELECT id FROM cdc_relay.gap WHERE slot = $1 AND system_id = $2 AND until_xid IS NULL AND recovered_at IS NULL),
			kept AS (INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_lsn)
				SELECT $1::text, $2::text, $3, $4, $5, $6::text::pg_lsn WHERE NOT EXISTS (SELECT FROM open) RETURNING id)
		SELECT min(id) FROM (SELECT id FROM open UNION ALL SELECT id FROM kept) g`, a.c.Slot, a.found.Server.SystemID, rec.Incarnation, a.opt.ID, reason, nullableLSN(from)).Scan(&a.result.Gap)
	if err != nil {
		return fmt.Errorf("write cdc_relay.gap: %w", err)
	}
	if len(a.c.Tables) == 0 {
		return nil
	}
	flag, err := schema.OrderFlag(ctx, tx, a.c.Tables)
	a.result.Next = fmt.Sprintf("cdc-relay resend --gap %d%s", a.result.Gap, flag)
	return err
}

// forgetProgress has a copy count as a slot that was never in use: it has nothing to recover, so a
// start that is cut off while it makes a new slot does not offer to recover what the original
// sends.
func (a *acceptance) forgetProgress(ctx context.Context, tx pgx.Tx) error {
	if !a.opt.Copy {
		return nil
	}
	if _, err := tx.Exec(ctx, `DELETE FROM cdc_relay.progress WHERE slot = $1`, a.c.Slot); err != nil {
		return fmt.Errorf("write cdc_relay.progress: %w", err)
	}
	return nil
}

// nullableLSN is a position as a parameter: NULL for 0, which is not known.
func nullableLSN(at pglogrepl.LSN) *string {
	if at == 0 {
		return nil
	}
	text := at.String()
	return &text
}

// moveRows gives the deferred rows, dead letters, requests and jobs of the other server to this
// one, or keeps them from being sent here.
//
// The rows of the other server have a lower incarnation than the slot gets when it is adopted, so
// they are sent before what is new of their ordering groups. A copy made with the server's files
// has the same system identifier; its rows get one that no server has.
func (a *acceptance) moveRows(ctx context.Context, tx pgx.Tx) error {
	rec, to := a.found.Record, a.found.Server.SystemID
	switch same := rec.SystemID == to; {
	case a.opt.Copy && same:
		to = rec.SystemID + "@" + strconv.Itoa(int(rec.Timeline))
	case a.opt.Copy || same: // they are another system's already, or this one's
		return nil
	}
	return a.moveSystemRows(ctx, tx, rec.SystemID, to)
}

// moveSystemRows gives the rows of a system to another one.
func (a *acceptance) moveSystemRows(ctx context.Context, tx pgx.Tx, from, to string) error {
	moved, err := slot.MoveRows(ctx, tx, a.c.Slot, from, to)
	a.result.Moved += moved
	return err
}

// recordSent records the rows that came from the server before as sent, as an operator says they
// were, and moves what waits. Otherwise a later recover would send them all: of a restored dump
// nothing is known. left: there are rows that may have been written here.
//
// Not recorded are rows that may have been written here (sent.Description.UnsentSQL); others with
// the id of an event that waits or is a dead letter, whatever its table; and those that do not say
// which transaction wrote them, of which nothing can be known.
//
// Rows keep the numbers of their transactions, also those that this server has not given yet. A row
// that is written here under one of them has another id, so it is not taken for sent, and
// schema.OutboxTable.First begins again (slot.Record.SentBefore). A commit timestamp of such a
// number is not taken for the row's (slot.Record.Restored).
func (a *acceptance) recordSent(ctx context.Context, tx pgx.Tx) (left bool, err error) {
	if err := slot.CheckReadable(ctx, a.pool, a.c); err != nil {
		return false, err
	}
	same, err := slot.SameTables(ctx, tx, a.c.Slot)
	if err != nil {
		return false, err
	}
	// It is idle while the tables are read. It locks nothing but our own tables.
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return false, err
	}
	if err := a.moveRows(ctx, tx); err != nil {
		return false, err
	}
	err = sent.InOwnConnection(ctx, a.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(read pgx.Tx) error {
		// nested loops would go through the sent set once per row, if its size is misjudged
		if _, err := read.Exec(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL enable_nestloop = off"); err != nil {
			return err
		}
		for _, t := range a.c.Tables {
			some, err := a.recordTable(ctx, tx, read, t, same)
			if err != nil {
				return fmt.Errorf("read the rows of %s: %w", t, err)
			}
			left = left || some
		}
		return nil
	})
	return left, err
}

// recordTable records the rows of one table, which another transaction reads. same: what was
// recorded on the server before is true here, and need not be recorded again.
func (a *acceptance) recordTable(ctx context.Context, tx, read pgx.Tx, t decode.Table, same bool) (left bool, err error) {
	name := source.QuoteTable(t)
	if err := sent.LockTable(ctx, read, a.pool, name); err != nil {
		return false, err
	}
	d, err := sent.Describe(ctx, a.pool, slot.SentTable(t))
	if err != nil {
		return false, err
	}
	var recorded []uint32
	if same {
		recorded = d.Family
	}
	rows, err := read.Query(ctx, d.UnsentPartsSQL(name), a.c.Slot, recorded)
	if err != nil {
		return false, err
	}
	var count, first, last int64
	var digests []int64
	_, err = pgx.ForEachRow(rows, []any{&count, &first, &last, &digests}, func() error {
		if len(digests) == 0 {
			left = left || last > 0 || !d.AllRowsTell()
			return nil
		}
		a.result.Recorded += count
		_, err := tx.Exec(ctx, sent.InsertByWordSQL, a.c.Slot, d.OID, sent.Chunk(uint64(first)), first, last, digests)
		return err
	})
	if err != nil {
		return false, err
	}
	return left, sent.CheckTable(ctx, a.pool, name)
}

// systemOfID is the system whose deferred rows the ID is about, as check counts them; "": none.
func (a *acceptance) systemOfID(ctx context.Context) (string, error) {
	rows, err := a.pool.Query(ctx, `SELECT system_id, count(*), max(n) FROM (SELECT system_id, n FROM cdc_relay.retry WHERE slot = $1
		UNION ALL SELECT system_id, n FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open') r WHERE system_id <> $2 GROUP BY system_id`,
		a.c.Slot, a.found.Server.SystemID)
	if err != nil {
		return "", fmt.Errorf("read cdc_relay.retry: %w", err)
	}
	var other, found string
	var count, last int64
	_, err = pgx.ForEachRow(rows, []any{&other, &count, &last}, func() error {
		if a.opt.ID == a.found.SystemID(other, count, last) {
			found = other
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read cdc_relay.retry: %w", err)
	}
	return found, nil
}

// acceptSystem makes deferred rows of another system this one's, so that they are sent here. They
// were left behind when this server was accepted. A relay that leads has not counted them, and
// would let later events of their keys pass: it is fenced. Their incarnations are below the slot's,
// which became higher than all of them when it was adopted, so they come first.
func (a *acceptance) acceptSystem(ctx context.Context, other string) error {
	switch {
	case a.opt.Delivered != "":
		return usageStop("--delivered is about the slot, and these are rows that wait", "leave it out")
	case !a.opt.SameData:
		return usageStop("these rows are of another system, and left to it already", "add --same-data to have them sent here, if this server has taken its place")
	}
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET epoch = epoch + 1, changed_at = now() WHERE slot = $1`, a.c.Slot); err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		if err := a.moveSystemRows(ctx, tx, other, a.found.Server.SystemID); err != nil {
			return err
		}
		a.result.Done = "rows of system " + other + " are sent by the next leader"
		return a.writeAudit(ctx, tx, "this server takes the place of system "+other)
	})
}

// advancePastOriginal moves the slot of a copy to where the copy's own timeline begins: what was
// committed before that was committed on the original too. The new position is not part of the
// transaction, so it is the last statement before its commit. A commit that fails leaves a slot
// that is ahead, which is another finding.
func (a *acceptance) advancePastOriginal(ctx context.Context, tx pgx.Tx) error {
	if !a.opt.Copy || a.opt.NewSlot || a.found.View == nil || a.found.Record.SystemID != a.found.Server.SystemID {
		return nil // a slot of another system was made there
	}
	was := a.found.Record.Timeline
	at, known := a.found.Server.LeftAt(was)
	if !known {
		return usageStop(fmt.Sprintf("the history of timeline %d does not have timeline %d, on which the slot was read", a.found.Server.Timeline, was),
			"add --new-slot: what waits in the slot may be what the other server sends")
	}
	if a.found.View.ConfirmedFlush >= at {
		return nil
	}
	if _, err := tx.Exec(ctx, `SELECT pg_replication_slot_advance($1, $2)`, a.c.Slot, at); err != nil {
		return fmt.Errorf("advance slot %q to the end of timeline %d: %w (or add --new-slot)", a.c.Slot, was, err)
	}
	return nil
}
