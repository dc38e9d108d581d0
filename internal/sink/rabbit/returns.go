// The search for the events whose messages were returned. The broker acks these messages too, so a
// returned event that is not found would be lost.

package rabbit

import (
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

var errStrangeReturn = errors.New("the broker returned a message that was not sent")

// sentAs is what a return shows of the event that it belongs to: where the message was going, and
// the position in its header, as the relay's own format has one; "" when it has none.
type sentAs struct {
	position string
	pair
}

// returned drains the channel's returns, and gives each to its event, by the event's place in the
// call. All of the round that were sent as the return was count as returned:
//
//   - Messages in the relay's own format carry a position. Two of a round may have the same one: a
//     dead letter that is replayed, and the mirror's copy of it, which has another destination.
//   - Messages of another encoder have none, or what a row had under that name. An exchange that
//     routes by its name and the routing key has returned all that were sent with these two.
//     Another one (of type headers) may have routed some: they are sent again, which costs a
//     duplicate, where another guess would cost an event.
//
// A return of no event is an error: the whole round is in doubt.
func (l *lane) returned(ch *conn.Channel) (map[int]amqp.Return, error) {
	var sent map[sentAs][]int
	var found map[int]amqp.Return
	for {
		var r amqp.Return
		var ok bool
		select {
		case r, ok = <-ch.Returns:
		default:
		}
		if !ok {
			return found, nil
		}
		if found == nil {
			found = map[int]amqp.Return{}
			sent = l.sentBy()
		}
		r.Body = nil
		all := sent[sentAs{positionOf(r.Headers), pair{r.Exchange, r.RoutingKey}}]
		if len(all) == 0 {
			return nil, errStrangeReturn
		}
		if l.sink.cfg.Unroutable.ignored(r.Exchange) { // the answer decides
			l.sink.ignored.Add(1)
			continue
		}
		for _, i := range all {
			found[i] = r
		}
	}
}

// sentBy indexes the events of the round.
func (l *lane) sentBy() map[sentAs][]int {
	sent := map[sentAs][]int{}
	for _, s := range l.sent {
		at, _ := l.routeAndSize(s.index)
		key := sentAs{strings.Clone(positionOf(l.message.Pub.Headers)), at.clone()}
		sent[key] = append(sent[key], s.index)
	}
	return sent
}

// positionOf is the position that a message carries, "" for none.
func positionOf(headers amqp.Table) string {
	position, _ := headers[sink.HeaderPosition].(string)
	return position
}
