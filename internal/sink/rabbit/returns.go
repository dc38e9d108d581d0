// The search for the events whose messages were returned. The broker acks these messages too, so a
// returned event that is not found would be lost.

package rabbit

import (
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

var errStrangeReturn = errors.New("the broker returned a message that was not sent")

// sentAs is what a return shows of the event that it belongs to: where the message was going and,
// when it had the relay's own form, the position in its header; "" of a profile's.
type sentAs struct {
	position string
	pair
}

// returned drains the channel's returns, and gives each to its event, by the event's place in the
// call. All of the round that were sent as the return was count as returned:
//
//   - Messages in the relay's own form carry a position. Two of a round may have the same one: a
//     dead letter that is replayed, and the mirror's copy of it, which has another destination.
//   - Messages of a profile have no position. An exchange that routes by its name and the routing
//     key has returned all that were sent with these two. Another one (of type headers) may have
//     routed some: they are sent again, which costs a duplicate, where another guess would cost an
//     event.
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
		position, _ := r.Headers[message.HeaderPosition].(string)
		at := pair{r.Exchange, r.RoutingKey}
		own, profiled := sent[sentAs{position, at}], sent[sentAs{"", at}]
		if len(own)+len(profiled) == 0 {
			return nil, errStrangeReturn
		}
		for _, i := range own {
			found[i] = r
		}
		// also of a return with a position: a row of the profile may bring a header of that name
		for _, i := range profiled {
			found[i] = r
		}
	}
}

// sentBy indexes the events of the round.
func (l *lane) sentBy() map[sentAs][]int {
	sent := map[sentAs][]int{}
	for _, s := range l.sent {
		ev := l.events[s.index]
		at, _ := l.routeAndSize(s.index)
		key := sentAs{pair: at.clone()}
		if !l.message.Layout.Profiled(ev) {
			key.position = ev.Position.String()
		}
		sent[key] = append(sent[key], s.index)
	}
	return sent
}
