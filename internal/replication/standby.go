// Standing by: a relay waits while another one holds the slot, and shows who leads. Any other
// holder is an error.

package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"go.uber.org/zap"
)

const standbyPoll = 250 * time.Millisecond // how often a standby asks whether the slot is free

// standBy returns when nobody holds the slot. Only another cdc-relay is waited for: any other
// holder reads rows that we then never see.
func (s *Stream) standBy(ctx context.Context, t **session.Term) error {
	foreign := 0
	for {
		view, err := slot.Read(ctx, s.pool, s.cfg.Slot)
		if err != nil {
			return err
		}
		if view == nil || view.ActivePID == 0 {
			return nil // a missing slot is start's to explain
		}
		if !view.HeldByRelay() && view.Holder+view.HolderUser != "" {
			// Checked twice: a holder that is about to leave has no name for a moment.
			if foreign++; foreign > 1 {
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

// standBehind distinguishes our own lost session, which its walsender has not noticed yet, from
// another relay that leads. In the second case it discards what is in memory: the other relay reads
// it again.
func (s *Stream) standBehind(ctx context.Context, view *slot.View, t **session.Term) error {
	if *t == nil {
		return s.standingBy(ctx, view)
	}
	rec, err := slot.ReadRecord(ctx, s.pool, s.cfg.Slot)
	if err != nil {
		return err
	}
	if rec != nil && (*t).Continues(rec) {
		s.wait("the walsender of our lost session still holds the slot")
		return nil
	}
	(*t).End()
	*t = nil
	return s.standingBy(ctx, view)
}

// namedEvery is how often a standby asks for the leader's name: a new leader holds the slot for a
// moment before it writes its own.
const namedEvery = time.Second

// standingBy shows who holds the slot. All relays of a slot have the same name in PostgreSQL, so
// the leader's own name is added.
func (s *Stream) standingBy(ctx context.Context, view *slot.View) error {
	if h := &s.holder; h.pid != view.ActivePID || time.Since(h.asked) >= namedEvery {
		rec, err := slot.ReadRecord(ctx, s.pool, s.cfg.Slot)
		if err != nil {
			return err
		}
		*h = holder{pid: view.ActivePID, asked: time.Now()}
		if rec != nil && rec.Leader != "" {
			h.name = rec.Leader + ", "
		}
	}
	s.status.Standby(view, fmt.Sprintf("%s (%sbackend %d)", view.Holder, s.holder.name, view.ActivePID))
	why := fmt.Sprintf("slot %q is held by %s (pid %d)", s.cfg.Slot, view.Holder, view.ActivePID)
	if s.said != why {
		s.said = why
		s.cfg.Log.Info("standing by", zap.String("why", why))
	}
	return nil
}
