// A stream that has ended for good waits for an operator's decision, as a process that stays up
// with --hold-on-fatal.

package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// decisionPoll is how often the slot's record is looked at: one query of one row.
const decisionPoll = 2 * time.Second

// AwaitDecision returns true once the slot's record, or whether the slot exists, is not what it was
// when Run ended: an operator has accepted what was found, or recovered the slot, and Run may be
// called again. It returns false when ctx is done.
func (s *Stream) AwaitDecision(ctx context.Context) bool {
	for source.Sleep(ctx, decisionPoll) {
		if s.decidedOr(ctx, s.ended) != s.ended {
			// until now it is what it was before the end: the leader
			s.status.Enter(survey.Starting, "")
			return true
		}
	}
	return false
}

// decidedOr is decided, or other while the database does not answer.
func (s *Stream) decidedOr(ctx context.Context, other string) string {
	now, err := s.decided(ctx)
	if err != nil {
		return other
	}
	return now
}

// decided is what an operator decides with: it does not change when relays come and go. A slot that
// was accepted already and is then replaced by a new one shows that by its absence alone.
func (s *Stream) decided(ctx context.Context) (string, error) {
	rec, view, err := slot.ReadBoth(ctx, s.pool, s.cfg.Slot)
	if err != nil || rec == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %t %s", rec.State, rec.Incarnation, view != nil, rec.SendsText), nil
}

// forget makes the next Run begin as in a new process, which remembers nothing of the server.
func (s *Stream) forget() {
	s.durable, s.visitor, s.said = durable{}, visitor{}, ""
	s.cfg.Primary.Forget()
	s.cfg.Primary.Wal.Store(0)
	s.common.SetGood(&slot.View{})
}
