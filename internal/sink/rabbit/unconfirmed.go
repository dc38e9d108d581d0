// Pairs of exchange and routing key that do not confirm while others do: their queue is stuck, or
// has lost its majority.

package rabbit

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// pair is an exchange and a routing key.
type pair struct{ exchange, routingKey string }

// clone owns its strings, which may alias an event.
func (p pair) clone() pair {
	return pair{strings.Clone(p.exchange), strings.Clone(p.routingKey)}
}

// accuseUnconfirmed rejects events whose destinations were late twice in a row, or that are probed.
// The others stay Unknown, which is an error.
func (l *lane) accuseUnconfirmed() error {
	if l.unconfirmed == nil {
		l.unconfirmed = map[pair]struct{}{}
	}
	doubt := false
	for _, s := range l.sent {
		if l.outcomes[s.index].State != sink.Unknown {
			continue
		}
		l.stats.timeouts++
		dest, _ := l.routeAndSize(s.index)
		if _, again := l.unconfirmed[dest]; again || l.probes {
			delete(l.unconfirmed, dest)
			l.reject(s.index, &sink.Fault{
				Class: sink.Destination, Reason: sink.Unconfirmed, Destination: l.message.DestinationText(),
				Text:       fmt.Sprintf("no answer for %s, twice, while the broker answers", l.sink.cfg.ConfirmTimeout),
				Unanswered: l.unanswered,
			})
			continue
		}
		if len(l.unconfirmed) > 2*sink.MaxCallEvents {
			clear(l.unconfirmed)
		}
		l.unconfirmed[dest.clone()] = struct{}{}
		doubt = true
	}
	l.dropChannel()
	if doubt {
		return fmt.Errorf("no confirm for %s while the broker answers", l.sink.cfg.ConfirmTimeout)
	}
	l.planNextRound()
	return nil
}

// forgetUnconfirmed forgets that the destinations of what was just confirmed were late.
func (l *lane) forgetUnconfirmed() {
	for _, s := range l.sent {
		if l.outcomes[s.index].State == sink.Confirmed {
			at, _ := l.routeAndSize(s.index)
			delete(l.unconfirmed, at)
		}
	}
	if len(l.unconfirmed) == 0 {
		l.unconfirmed = nil
	}
}
