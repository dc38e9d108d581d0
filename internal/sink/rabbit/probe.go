// Probes: an event that was refused before travels alone.

package rabbit

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// stuckAgain is how long a probe of a destination that did not answer waits for its answer while
// the broker answers others, in confirm timeouts. Each one that is sent to a queue that is stuck is
// stored as one more copy in the end.
const stuckAgain = 10

// Probe sends an event on a channel apart, and for a fault of its own on a private connection. What
// the broker closes over it carries no other event, and nothing waits for its answer. There are
// channels for a few probes at a time. Those of destinations that did not answer are bounded apart:
// one queue may be behind thousands of them, and each probe keeps its channel for long.
func (s *Sink) Probe(ctx context.Context, ev *event.Event, suspect bool) (sink.Outcome, error) {
	l := newLane(s, s.links[ev.Hash%uint64(len(s.links))])
	var outcomes [1]sink.Outcome
	l.begin([]*event.Event{ev}, outcomes[:])
	defer l.finish()
	if len(l.todo) == 0 { // it is not allowed: the broker is not asked
		return outcomes[0], nil
	}
	if fault, err := s.bindAgain(ctx, ev); err != nil {
		return sink.Outcome{State: sink.Unsent}, err
	} else if fault != nil {
		l.Reject(0, fault)
		return outcomes[0], nil
	}
	_, dest := s.layout.Place(ev)
	if suspect {
		if err := l.seekFor(ctx, dest); err != nil {
			return sink.Outcome{State: sink.Unsent}, err
		}
	} else if l.use = conn.Probes; s.unanswered.has(dest) {
		// the right to a private connection is not kept for so long
		l.use, l.patience = conn.StuckProbes, stuckAgain*s.cfg.ConfirmTimeout
	}
	err := l.rounds(ctx)
	if outcomes[0].State == sink.Confirmed {
		s.unanswered.note(dest, false)
	}
	return outcomes[0], err
}

// seekFor waits for the right to a private connection for an event to a destination. The others do
// not wait behind one that did not answer before.
func (l *lane) seekFor(ctx context.Context, dest uint64) error {
	s := l.sink
	if !s.unanswered.has(dest) {
		if err := l.seek(ctx, s.private); err != nil || !s.unanswered.has(dest) {
			return err
		}
		l.leavePrivate() // it was found not to answer meanwhile
	}
	return l.seek(ctx, s.privateStuck)
}
