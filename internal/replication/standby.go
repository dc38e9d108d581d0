// Standing by: a relay waits while another one reads the slot, and shows who leads. Any other
// program that reads it is an error.

package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"go.uber.org/zap"
)

const standbyPoll = 250 * time.Millisecond // how often a standby asks whether the slot is free

// standBy returns when nobody reads the slot. Only another cdc-relay is waited for: any other
// program reads rows that we then never see.
func (s *Stream) standBy(ctx context.Context, t **session.Term) error {
	others := 0
	for {
		view, err := slot.Read(ctx, s.pool, s.cfg.Slot)
		if err != nil {
			return err
		}
		if view == nil || !view.Active() {
			return nil // a missing slot is start's to explain
		}
		if !view.ReadByRelay() && view.Holder+view.HolderUser != "" {
			// Checked twice: a program that is about to leave has no name for a moment.
			if others++; others > 1 {
				return slot.InUse(s.cfg, view)
			}
		}
		if err := s.standBehind(ctx, view, t); err != nil {
			return err
		}
		if !source.Sleep(ctx, standbyPoll) {
			return ctx.Err()
		}
	}
}

// standBehind distinguishes two cases: our own lost session, whose end its walsender has not
// noticed yet, and another relay that leads. In the second case it discards the line's memory,
// because the other relay reads these events again, and it shows who leads.
func (s *Stream) standBehind(ctx context.Context, view *slot.View, t **session.Term) error {
	rec, err := slot.ReadRecord(ctx, s.pool, s.cfg.Slot)
	if err != nil {
		return err
	}
	if *t != nil && rec != nil && (*t).Continues(rec) {
		s.wait("the slot is still active for our lost session")
		return nil
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
	return nil
}
