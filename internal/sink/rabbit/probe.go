// Probes: an event that was refused before travels alone.

package rabbit

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// stuckAgain is how long a probe waits for its answer while the broker answers others, in confirm
// timeouts. Each one that is sent to a queue that is stuck is stored as one more copy in the end.
const stuckAgain = 10

// maxProbes bounds the probes that have a channel at a time: a connection that opens none, because
// it has as many as the broker allows (channel_max, 2047), is given up.
const maxProbes = 100

// Probe sends an event on a channel of its own, and for a fault of its own on a private connection.
// What the broker closes over it carries no other event, and nothing waits for its answer. Opening
// the channel takes longer than sending the event, so this is not for new ones.
func (s *Sink) Probe(ctx context.Context, ev *event.Event, suspect bool) (sink.Outcome, error) {
	l := newLane(s, s.links[ev.Hash%uint64(len(s.links))])
	var outcomes [1]sink.Outcome
	l.begin([]*event.Event{ev}, outcomes[:])
	defer l.dropChannel()
	defer l.finish()
	l.suspects = 1
	if suspect {
		if err := l.seek(ctx); err != nil {
			return sink.Outcome{State: sink.Unsent}, err
		}
	} else { // the right to a private connection is not kept for long
		select {
		case s.probing <- struct{}{}:
			defer func() { <-s.probing }()
		case <-ctx.Done():
			return sink.Outcome{State: sink.Unsent}, ctx.Err()
		}
		l.patience = time.Now().Add(stuckAgain * s.cfg.ConfirmTimeout)
	}
	err := l.rounds(ctx)
	return outcomes[0], err
}
