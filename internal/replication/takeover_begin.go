package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// How a take-over begins: with its row, and then our slot.

// begin makes sure that our slot exists, at a position that only the row that says takeover lets be
// used.
func (m *takeover) begin(ctx context.Context) error {
	stream, id, err := meetServer(ctx, m.pool, m.c)
	if err != nil {
		return err
	}
	defer closeStream(stream)
	m.id = id
	for since := time.Now(); ; {
		err := m.locked(ctx, func(ctx context.Context) error { return m.prepare(ctx, stream) })
		if !errors.Is(err, errBeingMade) {
			return err
		}
		if m.opt.Wait >= 0 && time.Since(since) > max(m.opt.Wait, creationPatience) {
			return takeoverStop(outbox.ExitOperator, fmt.Sprintf("slot %q is being created by a run that has ended: its backend waits for the transactions that were open then", m.c.Slot),
				"let them end, or end them (SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start); then run this again")
		}
		if !slept(ctx, takeoverPoll) {
			return ctx.Err()
		}
	}
}

// errBeingMade is of a slot of ours that somebody else is creating: an earlier run that was killed,
// whose backend does not know it yet.
var errBeingMade = errors.New("the slot is being created")

// creationPatience is how long such a creation is waited for at least.
const creationPatience = 10 * time.Second

// prepare is a try of begin, under the lock.
func (m *takeover) prepare(ctx context.Context, stream *pgconn.PgConn) error {
	rec, ours, theirs, err := m.read(ctx)
	if err != nil {
		return err
	}
	if err := m.refuse(rec, theirs); err != nil {
		return err
	}
	if m.completed(rec) {
		return nil
	}
	if ours != nil && (!ours.made() || rec != nil && ours.ActivePID != 0) {
		return errBeingMade
	}
	other, err := readRecord(ctx, m.pool, m.opt.From)
	if err != nil {
		return err
	}
	if other != nil {
		return m.relays()
	}
	if m.c.Tables, err = findTables(ctx, m.pool, m.c, rec == nil); err != nil {
		return err
	}
	if rec == nil {
		if err := m.alone(ctx, m.pool); err != nil { // before a publication is made; what counts is mark's
			return err
		}
		if err := m.mark(ctx); err != nil {
			return err
		}
	}
	if ours != nil {
		return nil
	}
	return m.create(ctx, stream)
}

// mark writes the row that says takeover, while there is no slot of ours: one that is found next to
// the row is younger than the publication as it was checked, and nothing was hidden from it.
func (m *takeover) mark(ctx context.Context) error {
	if err := ensurePublication(ctx, m.pool, m.c); err != nil {
		return err
	}
	sent, err := checkPublication(ctx, m.pool, m.c, sends{})
	if err != nil {
		return err
	}
	ours, err := readSlot(ctx, m.pool, m.c.Slot)
	if err != nil {
		return err
	}
	if ours != nil {
		return takeoverStop(outbox.ExitOperator, fmt.Sprintf("slot %q exists already, and no takeover has made it: the publication may have hidden rows from it", m.c.Slot),
			fmt.Sprintf("choose another source.slot; or, if nobody needs it: SELECT pg_drop_replication_slot(%s); then run this again", quoteText(m.c.Slot)))
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		// Of several that begin at the same time one writes its row, and the next one sees it.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, hashtext($2))`, takeoverLock, m.opt.From); err != nil {
			return fmt.Errorf("lock the take-over of slot %q: %w", m.opt.From, err)
		}
		if err := m.alone(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation, took_from)
			VALUES ($1, $2, $3, $4, $5, 'takeover', 0, $6)`, m.c.Slot, m.id.SystemID, m.id.Timeline, m.c.Publication, sent, m.opt.From)
		if err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		return nil
	})
}

// takeoverLock is the first key of the advisory lock under which the row of a take-over is written;
// the second is the hash of the other slot's name.
const takeoverLock = 0x63646374

// create makes our slot. Nobody asks what was in the tables before it: the other slot has that, or
// had it.
func (m *takeover) create(ctx context.Context, stream *pgconn.PgConn) error {
	defer noticeLongWait(m.c, "creating the slot waits for the transactions that are open now to end")()
	_, err := pglogrepl.CreateReplicationSlot(ctx, stream, m.c.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
		Mode: pglogrepl.LogicalReplication, SnapshotAction: "NOEXPORT_SNAPSHOT",
	})
	if err != nil {
		return createFailed(m.c, err) // the row says takeover: what was created all the same is found by the next run
	}
	m.c.Log.Info("slot created", append(m.c.relayed(), zap.String("slot", m.c.Slot), zap.String("publication", m.c.Publication))...)
	return nil
}
