// Standing by: a relay waits while another one reads the slot, and shows who leads. Any other
// program that goes on reading it is an error.

package replication

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
)

const standbyPoll = 250 * time.Millisecond // how often a standby asks whether the slot is free

// holderPatience is how long any other program may hold the slot: one that peeks at it, as
// pg_logical_slot_peek_changes does, harms nothing and leaves.
const holderPatience = 5 * time.Second

// standBy returns when nobody reads the slot. Another cdc-relay is waited for. Any other program
// reads rows that we then never see, unless it leaves soon and leaves the slot where it was.
func (s *Stream) standBy(ctx context.Context, t **session.Term) error {
	for {
		var rec *slot.Record
		view, err := slot.Read(ctx, s.pool, s.cfg.Slot)
		if err == nil {
			rec, err = slot.ReadRecord(ctx, s.pool, s.cfg.Slot)
		}
		if err != nil {
			s.visitor = visitor{} // what happens until the next answer is not known
			return err
		}
		if view == nil || !view.Active() {
			err := s.visitor.moved(s.cfg, rec, view)
			s.visitor = visitor{}
			return err // a missing slot is start's to explain
		}
		switch named := view.Holder+view.HolderUser != ""; {
		case view.ReadByRelay():
			s.visitor = visitor{}
			s.standBehind(rec, view, t)
		case named:
			if held := slot.InUse(s.cfg, view); s.stays(held, rec, view) {
				return held
			}
		case s.visitor.name == "": // a program that is about to leave has no name for a moment
			s.standBehind(rec, view, t)
		}
		if !source.Sleep(ctx, standbyPoll) {
			return ctx.Err()
		}
	}
}

// visitor is the program that holds the slot and is no relay, and the slot as it was when it, or
// another one before it, was first seen.
type visitor struct {
	name  string // with its pid
	since time.Time
	epoch int64
	at    pglogrepl.LSN // 0: not known
}

// stays reports whether the same program has held the slot for too long, which held says; else it
// shows and logs who is waited for. rec and view are the slot as it is now; nil: not known.
func (s *Stream) stays(held error, rec *slot.Record, view *slot.View) bool {
	v := &s.visitor
	if v.name != held.Error() {
		v.name, v.since = held.Error(), time.Now()
	}
	if v.at == 0 && rec != nil && view != nil {
		v.epoch, v.at = rec.Epoch, view.ConfirmedFlush
	}
	patience := cmp.Or(s.cfg.HolderPatience, holderPatience)
	if time.Since(v.since) >= patience {
		return true
	}
	s.wait(fmt.Sprintf("%s; the relay stops unless that program leaves within %s", v.name, patience))
	return false
}

// moved is the finding that the slot, free again, was moved while a visitor held it. Below the
// flush limit nothing else would show that. No relay moved it: a new leader would have raised the
// epoch, which is read after the slot, and the former one records what it reported when it stops.
func (v visitor) moved(c *source.Config, rec *slot.Record, view *slot.View) error {
	if v.at == 0 || rec == nil || view == nil || rec.Epoch != v.epoch || view.ConfirmedFlush <= max(v.at, rec.Reported) {
		return nil
	}
	return source.SlotMoved(c, fmt.Sprintf("%s, which moved it from %s to %s: rows committed in between may be missing", v.name, v.at, view.ConfirmedFlush))
}

// standBehind distinguishes two cases: our own lost session, whose end its walsender has not
// noticed yet, and another relay that leads. In the second case it discards the line's memory,
// because the other relay reads these events again, and it shows who leads.
func (s *Stream) standBehind(rec *slot.Record, view *slot.View, t **session.Term) {
	if *t != nil && rec != nil && (*t).Continues(rec) {
		s.wait("the slot is still active for our lost session")
		return
	}
	(*t).End()
	*t = nil
	s.status.Slot(view)
	leader := "" // all relays of a slot have the same name in PostgreSQL, so its own name is added
	if rec != nil && rec.Leader != "" {
		leader = rec.Leader + ", "
	}
	s.status.Enter(survey.Standby, fmt.Sprintf("slot is active for %s (%sbackend %d)", view.Holder, leader, view.ActivePID))
	why := fmt.Sprintf("slot %q is active for %s (pid %d)", s.cfg.Slot, view.Holder, view.ActivePID)
	if s.said != why {
		s.said = why
		s.cfg.Log.Info("standing by", zap.String("reason", why))
	}
}
