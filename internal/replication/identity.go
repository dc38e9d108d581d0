package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// identity is what IDENTIFY_SYSTEM says of the cluster at the other end.
type identity struct {
	SystemID string
	Timeline int32
	Database string
}

func identify(ctx context.Context, conn *pgconn.PgConn) (identity, error) {
	sys, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return identity{}, fmt.Errorf("identify system: %w", err)
	}
	return identity{sys.SystemID, sys.Timeline, sys.DBName}, nil
}

// checkIdentity compares record, slot and cluster: is this still the slot we know (I7)? It asks
// nothing of positions; those are compared while the slot is held, by checkPosition.
func checkIdentity(c *Config, rec *record, slot *slotView, id identity) error {
	why := slot.foreign(id.Database)
	switch {
	case why != "" && slot.Type == "logical" && slot.Database == id.Database:
		stop := foreignSlot(c, why)
		stop.Mend += ", and to go on where its program stops: cdc-relay takeover --from-slot " + c.Slot
		return stop
	case why != "":
		return foreignSlot(c, why)
	case slot.WALStatus == "lost" || slot.Invalidation != "":
		return slotLost(c, fmt.Sprintf("slot %q was invalidated by the server (wal_status %s %s): what was committed after %s and not yet delivered cannot be read from it",
			c.Slot, slot.WALStatus, slot.Invalidation, rec.reported()),
			fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", quoteText(c.Slot))+adoptHint(c)+newSlotHint(c))
	case rec == nil:
		return nil
	case rec.SystemID != id.SystemID:
		return slotMoved(c, fmt.Sprintf("slot %q belongs to system %s, this server is system %s", c.Slot, rec.SystemID, id.SystemID))
	case rec.Timeline != id.Timeline:
		return slotMoved(c, fmt.Sprintf("slot %q was left on timeline %d, this server is on timeline %d: it was restored or promoted, rows may be missing from its WAL",
			c.Slot, rec.Timeline, id.Timeline))
	case rec.Publication != c.Publication:
		return slotMoved(c, fmt.Sprintf("slot %q was read with publication %q, source.publication now names %q: positions of events would change",
			c.Slot, rec.Publication, c.Publication))
	}
	return nil
}

// lookAtPosition is checkPosition for commands, which do not hold the slot. The record is read
// after the slot: a ceiling is raised before it is used, and lowered only to what the slot has, so
// the later one is never below the earlier slot.
func lookAtPosition(ctx context.Context, q querier, c *Config, slot *slotView) error {
	rec, err := readRecord(ctx, q, c.Slot)
	if err != nil || rec == nil || rec.State != stateReady { // of no other it is known where the slot was left
		return err
	}
	return checkPosition(c, rec, slot, 0)
}

// checkPosition runs while we hold the slot: a position beyond everything that was ever reported
// means that the slot is another one, or was moved by another hand, and that rows in between were
// never sent.
func checkPosition(c *Config, rec *record, slot *slotView, lastReported pglogrepl.LSN) error {
	if slot.ConfirmedFlush > rec.Ceiling {
		return slotMoved(c, fmt.Sprintf("slot %q is at %s, but no relay ever reported more than %s: it was dropped and created again, or moved; rows committed between %s and %s may be missing",
			c.Slot, slot.ConfirmedFlush, rec.Ceiling, rec.Reported, slot.ConfirmedFlush))
	}
	if lastReported != 0 && slot.ConfirmedFlush > lastReported { // 0: not this process's term
		return slotMoved(c, fmt.Sprintf("slot %q is at %s, but this relay reported no more than %s: it was dropped and created again, or moved; rows in between may be missing",
			c.Slot, slot.ConfirmedFlush, lastReported))
	}
	return nil
}

func (r *record) reported() pglogrepl.LSN {
	if r == nil {
		return 0
	}
	return r.Reported
}

func slotLost(c *Config, what, mend string) *outbox.Stop {
	return &outbox.Stop{Code: outbox.ExitOperator, Reason: "slot_lost", What: what, Mend: mend}
}

func slotMoved(c *Config, what string) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "slot_moved", What: what,
		Mend: "find and re-send what is missing" + adoptHint(c),
	}
}

func foreignSlot(c *Config, what string) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "slot_foreign",
		What: fmt.Sprintf("slot %q %s", c.Slot, what),
		Mend: "choose another source.slot",
	}
}

// notTaken is why a relay does not start a slot whose take-over is not complete.
func notTaken(c *Config, rec *record) *outbox.Stop {
	return takeoverStop(outbox.ExitOperator, fmt.Sprintf("slot %q takes the place of slot %q, and that is not complete", c.Slot, rec.TookFrom),
		"cdc-relay takeover --from-slot "+rec.TookFrom)
}

// held is the error for a slot that must be free and is not: a relay's walsender is waited for, be
// it one that has not noticed yet that its client died; another program's is the operator's to end.
func held(c *Config, slot *slotView) error {
	if slot.heldByRelay() {
		return fmt.Errorf("slot %q is held by %s (pid %d)", c.Slot, slot.Holder, slot.ActivePID)
	}
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "slot_held",
		What: fmt.Sprintf("slot %q is held by %q (role %s, pid %d), which is not a cdc-relay", c.Slot, slot.Holder, slot.HolderUser, slot.ActivePID),
		Mend: "stop that program, or choose another source.slot",
	}
}

func takeoverStop(code int, what, mend string) *outbox.Stop {
	reason := "takeover"
	if code == outbox.ExitUsage {
		reason = "usage"
	}
	return &outbox.Stop{Code: code, Reason: reason, What: what, Mend: mend}
}
