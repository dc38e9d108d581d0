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

package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// PromotedOn reports whether the record is of an earlier timeline of the same server.
func (r *Record) PromotedOn(id Identity) bool {
	return r != nil && r.State == StateReady && r.SystemID != "" && r.SystemID == id.SystemID && r.Timeline < id.Timeline
}

// on is the record as it would be on a server's timeline.
func (r *Record) on(id Identity) *Record {
	now := *r
	now.Timeline = id.Timeline
	return &now
}

// CheckUse returns why the slot is not used as it is on this server; nil: it is, perhaps after a
// promotion. Positions are compared with CheckPosition, while the slot is held.
func CheckUse(ctx context.Context, q source.Querier, c *source.Config, rec *Record, view *View, id Identity) error {
	if !rec.PromotedOn(id) {
		return CheckIdentity(c, rec, view, id)
	}
	if err := CheckIdentity(c, rec.on(id), view, id); err != nil {
		return err
	}
	p, err := readPromoted(ctx, q)
	if err != nil {
		return err
	}
	return p.check(c, rec, view, id)
}

// promoted is what a promoted server says of the time when it was a standby.
type promoted struct {
	slotName string // primary_slot_name; "": it is not set any more
	target   bool   // it was recovered to a point in time
}

// readPromoted reads the settings, which every role may see. They stay when a standby is promoted,
// unless the tool that did it has removed them.
func readPromoted(ctx context.Context, q source.Querier) (p promoted, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err = q.QueryRow(ctx, `SELECT current_setting('primary_slot_name'), EXISTS (SELECT FROM pg_settings
		WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name', 'recovery_target_time', 'recovery_target_xid') AND setting <> '')`).
		Scan(&p.slotName, &p.target)
	if err != nil {
		return p, fmt.Errorf("read primary_slot_name: %w", err)
	}
	return p, nil
}

// check returns the finding that names what is not proven first; nil: nothing is missing.
func (p promoted) check(c *source.Config, rec *Record, view *View, id Identity) error {
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
		why = "the database does not say up to where everything was settled, as a relay of an earlier version writes nothing about it"
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

// notSynced says where a slot comes from that PostgreSQL itself has not synced.
func notSynced(rec *Record, view *View) string {
	switch {
	case view.Failover && !view.Synced:
		return "the slot is a failover slot that was not synced from the old primary: this server has it from a time when it was the primary itself"
	case view.ConfirmedFlush <= rec.Reported:
		return "the slot was not synced by PostgreSQL. It looks as if another tool has copied it, such as Patroni (permanent slots) or pg_failover_slots, and nothing shows that this server had all rows of cdc_relay by then"
	}
	return "the slot was not synced by PostgreSQL, and is ahead of what was reported: it looks as if it was created after the promotion"
}

// notRecorded returns why this server may not be one that had all that the relay read; "": it is
// one. Without primary_slot_name it may have been any standby: all must have been recorded.
func (p promoted) notRecorded(rec *Record) string {
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

// goOn records that the slot is read on the promoted server from now on. Of two relays that find
// the promotion one writes; the other one reads again. The incarnation stays: the stream goes on,
// and rows of the retry table are of this slot. Which standbys the new primary has is recorded once
// a relay reads there.
func goOn(ctx context.Context, pool *pgxpool.Pool, c *source.Config, rec *Record, view *View, id Identity) error {
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
		_, err = Audit(ctx, tx, c.Slot, id.SystemID, "promotion", "",
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
