// Probes: an event that was refused before travels alone.

package rabbit

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// stuckAgain is how long a probe of a destination that did not answer waits for its answer while
// the broker answers others, in confirm timeouts. Each one that is sent to a queue that is stuck is
// stored as one more copy in the end.
const stuckAgain = 10

// These bound the probes that have a channel at a time: a connection that opens none, because it
// has as many as the broker allows (channel_max, 2047), is given up. Probes of destinations that
// did not answer are bounded apart. One queue may be behind thousands of them, and each probe keeps
// its channel for long: those of destinations that answer at once do not wait for them.
const (
	maxProbes = 50
	maxStuck  = 50
)

// Probe sends an event on a channel of its own, and for a fault of its own on a private connection.
// What the broker closes over it carries no other event, and nothing waits for its answer. Opening
// the channel takes longer than sending the event, so this is not for new ones.
func (s *Sink) Probe(ctx context.Context, ev *event.Event, suspect bool) (sink.Outcome, error) {
	l := newLane(s, s.links[ev.Hash%uint64(len(s.links))])
	var outcomes [1]sink.Outcome
	l.begin([]*event.Event{ev}, outcomes[:])
	defer l.dropChannel()
	defer l.finish()
	if len(l.todo) == 0 { // it is not allowed: the broker is not asked
		return outcomes[0], nil
	}
	_, dest := s.layout.Place(ev)
	if suspect {
		if err := l.seekFor(ctx, dest); err != nil {
			return sink.Outcome{State: sink.Unsent}, err
		}
	} else { // the right to a private connection is not kept for long
		stuck := s.unanswered.has(dest)
		if stuck {
			l.patience = stuckAgain * s.cfg.ConfirmTimeout
		}
		leave, err := s.enter(ctx, stuck)
		if err != nil {
			return sink.Outcome{State: sink.Unsent}, err
		}
		defer leave()
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

// enter waits until a probe may have a channel; stuck: its destination did not answer.
func (s *Sink) enter(ctx context.Context, stuck bool) (leave func(), err error) {
	of := s.probing
	if stuck {
		of = s.stuck
	}
	select {
	case of <- struct{}{}:
		return func() { <-of }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
