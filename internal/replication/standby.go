// Standing by: a relay waits while another one reads the slot, and shows who leads. Any other
// program that streams from it is an error.

package replication

import (
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

// standBy returns when nobody reads the slot. Another cdc-relay is waited for. So is a session that
// calls a function on the slot, as a psql that peeks at it: it harms nothing, unless the slot is
// not where it was when the function has ended. A function moves the slot at its end, so the first
// look at it is early enough. A walsender may have moved it before the first look, and rows that it
// took are rows that we then never see: so no other program may stream from the slot, however
// briefly.
func (s *Stream) standBy(ctx context.Context, t **session.Term) error {
	walsenders := 0 // looks at one that is not of a relay
	for {
		var rec *slot.Record
		view, err := slot.Read(ctx, s.pool, s.cfg.Slot)
		if err == nil {
			rec, err = slot.ReadRecord(ctx, s.pool, s.cfg.Slot)
		}
		if err != nil {
			return err
		}
		if view == nil || !view.Active() {
			err := s.visitor.moved(s.cfg, rec, view)
			s.visitor = visitor{}
			return err // a missing slot is start's to explain
		}
		switch named := view.Holder+view.HolderUser != ""; {
		case named && view.Streams && !view.ReadByRelay():
			// Checked twice: a program that is about to leave has no name for a moment.
			if walsenders++; walsenders > 1 {
				return slot.InUse(s.cfg, view)
			}
		case named && !view.Streams:
			s.visitor.seen(s.cfg, rec, view)
			s.wait(s.visitor.name)
		case view.ReadByRelay():
			s.visitor = visitor{} // a leader moves the slot
			s.standBehind(rec, view, t)
		case s.visitor.name == "":
			s.standBehind(rec, view, t)
		}
		if !source.Sleep(ctx, standbyPoll) {
			return ctx.Err()
		}
	}
}

// visitor is a session that calls a function on the slot, and the slot as it was when it, or
// another one before it, was first seen.
type visitor struct {
	name  string // with its pid
	epoch int64
	at    pglogrepl.LSN
}

// seen records who holds the slot, and at first where the slot is. It stays known when a later look
// fails.
func (v *visitor) seen(c *source.Config, rec *slot.Record, view *slot.View) {
	if v.name == "" && rec != nil {
		v.epoch, v.at = rec.Epoch, view.ConfirmedFlush
	}
	v.name = slot.InUse(c, view).Error()
}

// moved is the finding that the slot, free again, was moved while a visitor held it. Below the
// flush limit nothing else would show that. No relay moved it: a new leader would have raised the
// epoch, which is read after the slot, and the former one records what it reported when it stops.
func (v *visitor) moved(c *source.Config, rec *slot.Record, view *slot.View) error {
	if v.at == 0 || rec == nil || view == nil || rec.Epoch != v.epoch || view.ConfirmedFlush <= max(v.at, rec.Reported) {
		return nil
	}
	return source.SlotMoved(fmt.Sprintf("%s, and was moved meanwhile from %s to %s: rows committed in between may be missing", v.name, v.at, view.ConfirmedFlush))
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
