// The check that a slot is the one that our record describes, on the server that it describes (I7).
// A slot, or a server, that was replaced would go on at a position that means nothing here, and
// events would be lost without an error.

package slot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Identity is the server's answer to IDENTIFY_SYSTEM, with the history of its timelines.
type Identity struct {
	SystemID string
	Timeline int32
	Database string

	left map[int32]pglogrepl.LSN // where each timeline before this one was left; nil: not known
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

// timelinesLeft reads at which position each timeline before this one was left. The history has a
// line for each timeline: its number, the position, and a comment.
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

// LeftAt is the position at which this server's history left an earlier timeline. known is false if
// the history does not have that timeline, or could not be read.
func (id Identity) LeftAt(timeline int32) (at pglogrepl.LSN, known bool) {
	at, known = id.left[timeline]
	return at, known
}

// IsOfOtherServer reports whether a record is of another server, or of another timeline of this
// one. A record that was written by hand names no server, and is of no other.
func (r *Record) IsOfOtherServer(id Identity) bool {
	return r != nil && r.SystemID != "" && (r.SystemID != id.SystemID || r.Timeline != id.Timeline)
}

// CheckIdentity compares record, slot and cluster, before a slot is used: is it still the slot that
// we know (I7)? Positions are compared separately, by CheckPosition, while the slot is held.
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
			c.Slot, view.WALStatus, reasonSuffix(view.Invalidation), rec.reported()), source.NewSlotFlag)
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

// CheckRecordedPosition is CheckPosition for commands, which do not hold the slot. It reads the
// record after the slot, for the reason that ReadBoth has.
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

// reasonSuffix is the server's reason for an invalidation, as the end of a text; PostgreSQL 17 and
// later have one.
func reasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return ", " + reason
}

// reported is Reported, or 0 without a record.
func (r *Record) reported() pglogrepl.LSN {
	if r == nil {
		return 0
	}
	return r.Reported
}

// Promotion: a standby of the server that the slot was read from is the primary now. The relay goes
// on by itself only when the database proves that nothing is missing (I7).
//
// The proof is in the promoted server's own data. settled_lsn S of cdc_relay.progress was written
// by a statement that was sent after every event below S was settled: confirmed by the broker, or
// by a row of ours that was committed before. WAL has one order, so a server that has S has these
// rows. The slot stands at or below S: what it does not send again is at the broker or in a row
// here. What was committed above it is in this server's WAL, and comes again. That is why a leader
// reports nothing above an S that the standbys have, see session.Term.
//
// What is not in this server's WAL was lost with the old primary, and this relay has not read it:
// a failover slot sends nothing that a standby of synchronized_standby_slots has not flushed. So
// the promoted server must be one that was named there while the slot was read. That is recorded
// then. What this process has received is compared as well.

// PromotedOn reports whether the record is of an earlier timeline of the same server, and of a slot
// that was in use: the server may be a standby that was promoted.
func (r *Record) PromotedOn(id Identity) bool {
	return r != nil && r.State == StateReady && r.SystemID != "" && r.SystemID == id.SystemID && r.Timeline < id.Timeline
}

// onTimeline is the record as it would be on the timeline of this server, so that CheckIdentity
// compares everything but the timeline.
func (r *Record) onTimeline(id Identity) *Record {
	now := *r
	now.Timeline = id.Timeline
	return &now
}

// CheckUse returns why the slot is not used as it is on this server; nil means that it is used,
// perhaps after a promotion. Positions are compared with CheckPosition, while the slot is held.
func CheckUse(ctx context.Context, q source.Querier, c *source.Config, rec *Record, view *View, id Identity) error {
	if !rec.PromotedOn(id) {
		return CheckIdentity(c, rec, view, id)
	}
	if err := CheckIdentity(c, rec.onTimeline(id), view, id); err != nil {
		return err
	}
	p, err := readPromoted(ctx, q)
	if err != nil {
		return err
	}
	return p.checkProof(c, rec, view, id)
}

// promotedServer has settings of a promoted server that are still as they were when it was a
// standby.
type promotedServer struct {
	slotName string // primary_slot_name; "": it is not set any more
	target   bool   // it was recovered to a point in time
}

// readPromoted reads the settings, which every role may see. They stay when a standby is promoted,
// unless the tool that did it has removed them.
func readPromoted(ctx context.Context, q source.Querier) (p promotedServer, err error) {
	err = source.Ask(ctx, q, "read primary_slot_name", `SELECT current_setting('primary_slot_name'), EXISTS (SELECT FROM pg_settings
		WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name', 'recovery_target_time', 'recovery_target_xid') AND setting <> '')`).
		Scan(&p.slotName, &p.target)
	return p, err
}

// checkProof returns the finding for the first part of the proof that is missing; nil means that
// the proof is complete.
func (p promotedServer) checkProof(c *source.Config, rec *Record, view *View, id Identity) error {
	left, known := id.LeftAt(rec.Timeline)
	if c.Primary != nil && known {
		if had := c.Primary.Received(); had > left {
			return c.RolledBack(fmt.Sprintf("a standby was promoted that had the WAL of timeline %d up to %s, and this relay had received it up to %s", rec.Timeline, left, had), left, had)
		}
	}
	var why string
	switch {
	case !view.Failover || !view.Synced || view.Temporary:
		why = notSynced(rec, view)
	case view.ConfirmedFlush > rec.FlushLimit:
		return CheckPosition(c, rec, view, 0)
	case rec.Settled == 0:
		why = "the database does not say up to where everything was settled"
	case view.ConfirmedFlush > rec.Settled:
		why = fmt.Sprintf("the slot is at %s, and the database has rows of what was settled only up to %s", view.ConfirmedFlush, rec.Settled)
	case !known:
		why = fmt.Sprintf("the history of timeline %d, as far as it can be read, does not have timeline %d", id.Timeline, rec.Timeline)
	case p.target:
		why = "its recovery_target settings say that it was restored to a point in time"
	default:
		why = p.notRecorded(rec)
	}
	if why == "" {
		return nil
	}
	return source.ServerMoved(fmt.Sprintf("slot %q was left on timeline %d, this server is on timeline %d: it was restored or promoted, and it is not proven that nothing is missing: %s",
		c.Slot, rec.Timeline, id.Timeline, why), false)
}

// notSynced says where a slot may come from that PostgreSQL itself has not synced.
func notSynced(rec *Record, view *View) string {
	switch {
	case view.Failover && !view.Synced:
		return "the slot is a failover slot that was not synced from the old primary: this server has it from a time when it was the primary itself"
	case view.ConfirmedFlush <= rec.Reported:
		return "the slot was not synced by PostgreSQL. It looks as if another tool has copied it, such as Patroni (permanent slots) or pg_failover_slots, and nothing shows that this server had all rows of cdc_relay by then"
	}
	return "the slot was not synced by PostgreSQL, and is ahead of what was reported: it looks as if it was created after the promotion"
}

// notRecorded returns why this server may lack WAL that the relay has read; "" means that it has
// all of it. Without primary_slot_name the server may have been any of the standbys, so all
// standbys must have been recorded.
func (p promotedServer) notRecorded(rec *Record) string {
	named := "no standby"
	if len(rec.Standbys) > 0 {
		named = strings.Join(rec.Standbys, ", ")
	}
	switch {
	case slices.Contains(rec.Standbys, p.slotName):
		return ""
	case p.slotName != "":
		return fmt.Sprintf("primary_slot_name is %s here, and synchronized_standby_slots named %s while the slot was read", p.slotName, named)
	case len(rec.Standbys) > 0 && !rec.OtherStandbys:
		return ""
	}
	return fmt.Sprintf("primary_slot_name is not set here, and not every standby was named by synchronized_standby_slots while the slot was read (it named %s)", named)
}

// errRecordChanged means that another process wrote to the record between our read and our write.
var errRecordChanged = errors.New("the slot's record was changed in the meantime")

// recordPromotion records that the slot is read on the promoted server from now on. Of two relays
// that find the promotion only one writes; the other one reads the record again. The incarnation
// stays, because the stream goes on, and rows of the retry table are of this slot. Which standbys
// the new primary has is recorded once a relay reads there.
func recordPromotion(ctx context.Context, pool *pgxpool.Pool, c *source.Config, rec *Record, view *View, id Identity) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET timeline = $4, changed_at = now(), standbys = '{}', other_standbys = true
			WHERE slot = $1 AND system_id = $2 AND timeline = $3 AND state = 'ready' AND incarnation = $5 AND epoch = $6`,
			c.Slot, id.SystemID, rec.Timeline, id.Timeline, rec.Incarnation, rec.Epoch)
		if err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return errRecordChanged
		}
		_, err = WriteAudit(ctx, tx, c.Slot, id.SystemID, "promotion", "",
			fmt.Sprintf("went on from timeline %d to %d: the slot is at %s; events above it that were sent before come twice", rec.Timeline, id.Timeline, view.ConfirmedFlush))
		return err
	})
	if err != nil {
		return err
	}
	said := []zap.Field{zap.String("slot", c.Slot), zap.Int32("from_timeline", rec.Timeline), zap.Int32("to_timeline", id.Timeline), zap.Stringer("slot_at", view.ConfirmedFlush)}
	if received := c.Primary.Received(); received != 0 { // by this process, if it has led
		said = append(said, zap.Stringer("received", received))
	}
	c.Log.Warn("went on after a promotion: nothing is missing; events above the slot's position that were sent before come twice", said...)
	return nil
}
