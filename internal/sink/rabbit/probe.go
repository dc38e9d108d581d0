// Probes: an event that was refused before travels alone.

package rabbit

import (
	"context"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// stuckAgain is how long a probe of a destination that did not answer waits for its answer while the
// broker answers others, in confirm timeouts. Each one that is sent to a queue that is stuck is
// stored as one more copy in the end.
const stuckAgain = 10

// maxProbes bounds the probes that have a channel at a time: a connection that opens none, because
// it has as many as the broker allows (channel_max, 2047), is given up.
const maxProbes = 100

// maxStuck is how many of these may be probes of destinations that did not answer. One queue may be
// behind thousands of them, and each probe keeps its channel for long. The rest is left to
// destinations that answer at once.
const maxStuck = maxProbes / 2

// maxUnanswered bounds the destinations that are known not to answer. All are forgotten then, and
// found again by their probes, which are waited for as long as any call.
const maxUnanswered = 10_000

// Probe sends an event on a channel of its own, and for a fault of its own on a private connection.
// What the broker closes over it carries no other event, and nothing waits for its answer. Opening
// the channel takes longer than sending the event, so this is not for new ones.
func (s *Sink) Probe(ctx context.Context, ev *event.Event, suspect bool) (sink.Outcome, error) {
	l := newLane(s, s.links[ev.Hash%uint64(len(s.links))])
	var outcomes [1]sink.Outcome
	l.begin([]*event.Event{ev}, outcomes[:])
	defer l.dropChannel()
	defer l.finish()
	_, dest := s.layout.Place(ev)
	if suspect {
		if err := l.seek(ctx); err != nil {
			return sink.Outcome{State: sink.Unsent}, err
		}
	} else { // the right to a private connection is not kept for long
		slots, stuck := []chan struct{}{s.probing}, s.unanswered.has(dest)
		if stuck {
			slots = []chan struct{}{s.stuck, s.probing}
			l.patience = stuckAgain * s.cfg.ConfirmTimeout
		}
		for _, slot := range slots {
			select {
			case slot <- struct{}{}:
				defer func() { <-slot }()
			case <-ctx.Done():
				return sink.Outcome{State: sink.Unsent}, ctx.Err()
			}
		}
	}
	err := l.rounds(ctx)
	if outcomes[0].State == sink.Confirmed {
		s.unanswered.note(dest, false)
	}
	return outcomes[0], err
}

// unanswered are the destinations (sink.Place.Dest) that are known not to answer.
type unanswered struct {
	mu    sync.Mutex
	dests map[uint64]struct{}
}

// note takes whether an event of a destination was left without an answer.
func (u *unanswered) note(dest uint64, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !is {
		delete(u.dests, dest)
		return
	}
	if u.dests == nil || len(u.dests) >= maxUnanswered {
		u.dests = map[uint64]struct{}{}
	}
	u.dests[dest] = struct{}{}
}

func (u *unanswered) has(dest uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, is := u.dests[dest]
	return is
}
