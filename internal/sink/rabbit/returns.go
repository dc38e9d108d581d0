// This file finds the events whose messages were returned. The broker acks those, too, so an event
// that is not found is lost.

package rabbit

import (
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

var errStrangeReturn = errors.New("the broker returned a message that was not sent")

// returned drains the channel's returns, and gives each to its event, by the event's place in the
// call. Messages in the relay's own form carry a position, which identifies the event. Messages of
// a profile have none: all of the round that were going to the exchange and routing key of the
// return count as returned. An exchange that routes by these two has returned all of them. Another
// one (of type headers) may have routed some: they are sent again, which costs a duplicate, where
// another guess would cost an event. A return of no event is an error: the whole round is in doubt.
func (l *lane) returned(ch *conn.Channel) (map[int]amqp.Return, error) {
	var own map[string]int // by position
	var profiled map[pair][]int
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
			own, profiled = l.sentBy()
		}
		r.Body = nil
		position, _ := r.Headers[message.HeaderPosition].(string)
		i, isOwn := own[position]
		group := profiled[pair{r.Exchange, r.RoutingKey}]
		if !isOwn && len(group) == 0 {
			return nil, errStrangeReturn
		}
		if isOwn {
			found[i] = r
		}
		// also of a return with a position: a row of the profile may bring a header of that name
		for _, i := range group {
			found[i] = r
		}
	}
}

// sentBy indexes the events of the round: those in the relay's own form by their position, those of
// a profile by where they were going.
func (l *lane) sentBy() (own map[string]int, profiled map[pair][]int) {
	own, profiled = map[string]int{}, map[pair][]int{}
	for _, s := range l.sent {
		if ev := l.events[s.index]; !l.message.Layout.Profiled(ev) {
			own[ev.Position.String()] = s.index
			continue
		}
		at, _ := l.where(s.index)
		at = at.clone()
		profiled[at] = append(profiled[at], s.index)
	}
	return own, profiled
}
