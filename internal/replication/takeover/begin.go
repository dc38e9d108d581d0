// Begins a takeover: writes its record, then creates our slot.

package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// begin makes sure that our slot exists. Its record in state takeover keeps relays from using it.
func (t *Takeover) begin(ctx context.Context) error {
	stream, id, err := slot.Connect(ctx, t.Pool, t.C)
	if err != nil {
		return err
	}
	defer source.CloseStream(stream)
	t.ID = id
	for since := time.Now(); ; {
		err := slot.Locked(ctx, t.Pool, t.C, func(ctx context.Context) error { return t.prepare(ctx, stream) })
		if !errors.Is(err, errBeingMade) {
			return err
		}
		if t.Opt.Wait >= 0 && time.Since(since) > max(t.Opt.Wait, creationPatience) {
			return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q is being created by a run that has ended: its backend waits for the transactions that were open then", t.C.Slot),
				"let them end, or end them (SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start); then run this again")
		}
		if !source.Sleep(ctx, takeoverPoll) {
			return ctx.Err()
		}
	}
}

// errBeingMade means that somebody else is creating our slot: an earlier run that was killed, whose
// backend has not noticed yet.
var errBeingMade = errors.New("the slot is being created")

// creationPatience is the shortest time for which begin waits for such a creation.
const creationPatience = 10 * time.Second

// prepare is a try of begin, under the lock.
func (t *Takeover) prepare(ctx context.Context, stream *pgconn.PgConn) error {
	rec, ours, theirs, err := t.read(ctx)
	if err != nil {
		return err
	}
	if err := t.checkSlots(rec, theirs); err != nil {
		return err
	}
	if t.completed(rec) {
		return nil
	}
	if ours != nil && (!ours.Made() || rec != nil && ours.Active()) {
		return errBeingMade
	}
	other, err := slot.ReadRecord(ctx, t.Pool, t.Opt.From)
	if err != nil {
		return err
	}
	if other != nil {
		return source.TakeoverStop(event.ExitUsage, fmt.Sprintf("slot %q is used by a relay: its deferred events would be left behind", t.Opt.From),
			"name a slot of another program")
	}
	if t.C.Tables, err = publication.FindTables(ctx, t.Pool, t.C, rec == nil); err != nil {
		return err
	}
	if rec == nil {
		// before a publication is created; Mark repeats the check
		if err := t.checkOnlyTakeover(ctx, t.Pool); err != nil {
			return err
		}
		if err := t.Mark(ctx); err != nil {
			return err
		}
	}
	if ours != nil {
		return nil
	}
	return t.create(ctx, stream)
}

// Mark writes the record in state takeover while our slot does not exist: so a slot that is found
// with such a record is newer than the checked publication, and nothing was hidden from it.
func (t *Takeover) Mark(ctx context.Context) error {
	if err := publication.Ensure(ctx, t.Pool, t.C); err != nil {
		return err
	}
	sent, err := publication.Check(ctx, t.Pool, t.C, publication.State{})
	if err != nil {
		return err
	}
	ours, err := slot.Read(ctx, t.Pool, t.C.Slot)
	if err != nil {
		return err
	}
	if ours != nil {
		if why := ours.NotOurs(t.ID.Database); why != "" {
			return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q already exists and %s", t.C.Slot, why), "choose another source.slot")
		}
		return source.TakeoverStop(event.ExitOperator, fmt.Sprintf("slot %q already exists and was not created by a takeover: the publication may have hidden rows from it", t.C.Slot),
			"choose another source.slot; or "+source.DropSlotHint(t.C.Slot)+"; then run this again")
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
		// Of several that begin at the same time one writes its record, and the next one sees it.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, hashtext($2))`, takeoverLock, t.Opt.From); err != nil {
			return fmt.Errorf("lock the takeover of slot %q: %w", t.Opt.From, err)
		}
		if err := t.checkOnlyTakeover(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation, took_from)
			VALUES ($1, $2, $3, $4, $5, 'takeover', 0, $6)`, t.C.Slot, t.ID.SystemID, t.ID.Timeline, t.C.Publication, sent, t.Opt.From)
		if err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		return nil
	})
}

// takeoverLock is the first key of the advisory lock under which the row of a takeover is written;
// the second is the hash of the other slot's name.
const takeoverLock = 0x63646374

// create creates our slot. Earlier rows of the tables are not counted: the other slot has or had
// them.
func (t *Takeover) create(ctx context.Context, stream *pgconn.PgConn) error {
	done := slot.WatchCreation(ctx, t.Pool, stream, t.C)
	_, err := pglogrepl.CreateReplicationSlot(ctx, stream, t.C.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
		Mode: pglogrepl.LogicalReplication, SnapshotAction: "NOEXPORT_SNAPSHOT",
	})
	done(err)
	if err != nil {
		// the record is in state takeover: a slot that was created nevertheless is found by the
		// next run
		return slot.CreateFailed(t.C, err)
	}
	t.C.Log.Info("slot created", append(t.C.Relayed(), zap.String("slot", t.C.Slot), zap.String("publication", t.C.Publication))...)
	return nil
}
