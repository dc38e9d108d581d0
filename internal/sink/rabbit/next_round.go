// The plan of a call's next round, made from the outcomes of the last one.

package rabbit

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// pair is an exchange and a routing key.
type pair struct{ exchange, routingKey string }

// clone owns its strings, which may alias an event.
func (p pair) clone() pair {
	return pair{strings.Clone(p.exchange), strings.Clone(p.routingKey)}
}

// reject settles an event as refused.
func (l *lane) reject(i int, fault *sink.Fault) {
	l.Reject(i, fault)
	if fault.Class == sink.Destination {
		exchange, dest := l.sink.layout.Place(l.Events[i])
		l.sink.noteRefusal(exchange, fault)
		l.sink.unanswered.note(dest, fault.Reason == sink.Unconfirmed)
	}
}

// planNextRound makes todo of what a round has left: what was not sent, and what is Unknown and
// will be resolved by sending it again. Behind a rejected event nothing of its key and exchange is
// sent again, so those count as Unsent; what is in doubt before it is sent.
func (l *lane) planNextRound() {
	l.todo = l.todo[:0]
	for i := range l.Outcomes {
		state := &l.Outcomes[i].State
		if *state == sink.Confirmed || *state == sink.Rejected {
			continue
		}
		if l.IsBehindRejected(i) {
			*state = sink.Unsent
			continue
		}
		l.todo = append(l.todo, i)
	}
}

// routeAndSize makes the message of an event of the call again, and returns where it goes and the
// size of its body. The result is valid until the lane's next message. It is empty for an event of
// which there is no message.
func (l *lane) routeAndSize(i int) (at pair, size int) {
	m := &l.message
	m.Enter(true)
	defer m.Leave(true)
	if m.Build(l.Events[i]) != nil {
		return pair{}, 0
	}
	return pair{m.Exchange, m.RoutingKey}, len(m.Pub.Body)
}

// destination names where an event goes; the caller owns the string.
func (l *lane) destination(i int) string {
	if l.message.Destination(l.Events[i]) != nil {
		return ""
	}
	return l.message.DestinationText()
}
