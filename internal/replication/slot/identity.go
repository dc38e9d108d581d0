// Checks that a slot is the one that the record describes.

package slot

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Identity is the answer of IDENTIFY_SYSTEM.
type Identity struct {
	SystemID string
	Timeline int32
	Database string

	left map[int32]pglogrepl.LSN // where the timelines before this one were left; nil: not known
}

// Identify asks the server of a replication connection for its system, timeline and database.
func Identify(ctx context.Context, conn *pgconn.PgConn) (Identity, error) {
	sys, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return Identity{}, fmt.Errorf("identify system: %w", err)
	}
	id := Identity{SystemID: sys.SystemID, Timeline: sys.Timeline, Database: sys.DBName}
	if sys.Timeline > 1 {
		// Without its file a promotion is not proven, and everything else is as it would be.
		if id.left, err = timelinesLeft(ctx, conn, sys.Timeline); err != nil && source.SQLState(err) == "" {
			return Identity{}, err
		}
	}
	return id, nil
}

// timelinesLeft reads where each timeline before this one was left. The history has a line for
// each: its number, the position, and a comment.
func timelinesLeft(ctx context.Context, conn *pgconn.PgConn, timeline int32) (map[int32]pglogrepl.LSN, error) {
	history, err := pglogrepl.TimelineHistory(ctx, conn, timeline)
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	left := map[int32]pglogrepl.LSN{}
	for line := range bytes.Lines(history.Content) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseInt(string(fields[0]), 10, 32)
		if err != nil {
			continue // a comment
		}
		at, err := pglogrepl.ParseLSN(string(fields[1]))
		if err != nil {
			return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
		}
		left[int32(n)] = at
	}
	return left, nil
}

// LeftAt is where this server's history left an earlier timeline; false: it did not, or that is not
// known.
func (id Identity) LeftAt(timeline int32) (at pglogrepl.LSN, known bool) {
	at, known = id.left[timeline]
	return at, known
}

// OfOther reports whether a record is of another server, or of another timeline of it. One that was
// written by hand has neither.
func (r *Record) OfOther(id Identity) bool {
	return r != nil && r.SystemID != "" && (r.SystemID != id.SystemID || r.Timeline != id.Timeline)
}

// CheckIdentity compares record, slot and cluster: is this still the slot we know (I7)? Positions
// are compared separately, by CheckPosition, while the slot is held.
func CheckIdentity(c *source.Config, rec *Record, view *View, id Identity) error {
	why := view.NotOurs(id.Database)
	switch {
	case why != "" && view.Type == "logical" && view.Database == id.Database:
		stop := source.ForeignSlot(c, why)
		stop.Fix += ", and to go on where its program stops: cdc-relay takeover --from-slot " + c.Slot
		return stop
	case why != "":
		return source.ForeignSlot(c, why)
	case view.Invalidated():
		return source.SlotLost(c, fmt.Sprintf("slot %q was invalidated by the server (wal_status %s%s): what was committed after %s and not yet delivered cannot be read from it",
			c.Slot, view.WALStatus, because(view.Invalidation), rec.reported()), source.NewSlot)
	case rec == nil:
		return nil
	case rec.SystemID != id.SystemID:
		return source.ServerMoved(fmt.Sprintf("slot %q belongs to system %s, this server is system %s", c.Slot, rec.SystemID, id.SystemID), true)
	case rec.Timeline != id.Timeline:
		return source.ServerMoved(fmt.Sprintf("slot %q was left on timeline %d, this server is on timeline %d: it was restored or promoted, rows may be missing from its WAL",
			c.Slot, rec.Timeline, id.Timeline), false)
	case rec.Publication != c.Publication:
		return source.SlotMoved(fmt.Sprintf("slot %q was read with publication %q, source.publication now names %q: positions of events would change",
			c.Slot, rec.Publication, c.Publication))
	}
	return nil
}

// CheckRecordedPosition is CheckPosition for commands, which do not hold the slot. The record is
// read after the slot: a flush limit is raised before it is used, and lowered only to what the slot
// has, so the later one is never below the earlier slot.
func CheckRecordedPosition(ctx context.Context, q source.Querier, c *source.Config, view *View) error {
	rec, err := ReadRecord(ctx, q, c.Slot)
	// only for a slot in state ready it is known where it was left
	if err != nil || rec == nil || rec.State != StateReady {
		return err
	}
	return CheckPosition(c, rec, view, 0)
}

// CheckPosition runs while we hold the slot: a position beyond everything that was ever reported
// means that the slot is a different one, or that somebody else moved it, and that rows in between
// were never sent.
func CheckPosition(c *source.Config, rec *Record, view *View, lastReported pglogrepl.LSN) error {
	if view.ConfirmedFlush > rec.FlushLimit {
		return source.SlotMoved(fmt.Sprintf("slot %q is at %s, but no relay ever reported more than %s: it was dropped and created again, or moved",
			c.Slot, view.ConfirmedFlush, rec.FlushLimit))
	}
	if lastReported != 0 && view.ConfirmedFlush > lastReported { // 0: not this process's term
		return source.SlotMoved(fmt.Sprintf("slot %q is at %s, but this relay reported no more than %s: it was dropped and created again, or moved",
			c.Slot, view.ConfirmedFlush, lastReported))
	}
	return nil
}

// because is the server's reason, where it has one (PostgreSQL 17 and later).
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ", " + reason
}

func (r *Record) reported() pglogrepl.LSN {
	if r == nil {
		return 0
	}
	return r.Reported
}
