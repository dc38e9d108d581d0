package rabbit

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// This file finds the events whose messages came back. The broker acks those, too, so one that is
// not found is an event lost.

// returned drains the channel's returns, and gives each to its event, by the event's place in the
// call.
func (l *lane) returned(ch *conn.Channel) map[int]amqp.Return {
	var all []amqp.Return
	for {
		select {
		case r, ok := <-ch.Returns:
			if !ok {
				return l.paired(all)
			}
			r.Body = nil
			all = append(all, r)
			continue
		default:
		}
		return l.paired(all)
	}
}

// comeback is what tells whose a return is that has no position: the header id, and where its
// message was going.
type comeback struct{ id, exchange, routingKey string }

// paired gives the returns to the events of the round: by the position header that each message of
// the relay's own carries, and where a profile makes the messages, which have no position, by the
// header id, the exchange and the routing key.
//
// Ids need not be unique. Every event of the round that was going there with the id of a return
// counts as returned: one that was routed is sent again, which costs a duplicate, where the other
// guess would cost an event. One that was going elsewhere does not: its own destination would be
// paused for another's fault. When a return fits no event, which no broker has been seen to do,
// every event of a profile counts as returned.
func (l *lane) paired(all []amqp.Return) map[int]amqp.Return {
	if len(all) == 0 {
		return nil
	}
	found := map[int]amqp.Return{}
	byPosition, byID := map[event.Position]amqp.Return{}, map[comeback]amqp.Return{}
	for _, r := range all {
		if pos, ok := positionOf(r.Headers); ok {
			byPosition[pos] = r
		}
		if id, ok := idOf(r.Headers); ok {
			byID[comeback{id, r.Exchange, r.RoutingKey}] = r
		}
	}
	used, copies := map[comeback]bool{}, map[event.Position]bool{}
	for _, s := range l.sent {
		ev := l.events[s.index]
		if !l.message.Layout.Profiled(ev) {
			if r, ok := byPosition[ev.Position]; ok {
				found[s.index], copies[ev.Position] = r, true
			}
			continue
		}
		if fault := l.message.Build(ev); fault != nil {
			continue // cannot be: it was sent
		}
		id, _ := idOf(l.message.Pub.Headers)
		if r, ok := byID[comeback{id, l.message.Exchange, l.message.RoutingKey}]; ok {
			// the message's strings are good until the next build
			found[s.index], used[comeback{id, r.Exchange, r.RoutingKey}] = r, true
		}
	}
	if l.message.Layout.Router != nil {
		l.suspectAll(all, used, copies, found)
	}
	return found
}

// suspectAll has every event of a profile count as returned when there is a return that is
// nobody's. used and copies are those that are somebody's: a position alone does not say so, since
// a row may bring a header of that name.
func (l *lane) suspectAll(all []amqp.Return, used map[comeback]bool, copies map[event.Position]bool, found map[int]amqp.Return) {
	for _, r := range all {
		id, ok := idOf(r.Headers)
		if pos, own := positionOf(r.Headers); ok && used[comeback{id, r.Exchange, r.RoutingKey}] || own && copies[pos] {
			continue
		}
		for _, s := range l.sent {
			if _, paired := found[s.index]; !paired && l.message.Layout.Profiled(l.events[s.index]) {
				found[s.index] = r
			}
		}
	}
}

// positionOf is the position that a message of the relay's own carries.
func positionOf(headers amqp.Table) (event.Position, bool) {
	text, _ := headers[message.HeaderPosition].(string)
	pos, err := event.ParsePosition(text)
	return pos, err == nil
}

// idOf is the header id of a message in Debezium's form: a string, or bytes.
func idOf(headers amqp.Table) (string, bool) {
	switch id := headers[headerID].(type) {
	case string:
		return strings.Clone(id), true // it may alias what the next message is made in
	case []byte:
		return string(id), true
	}
	return "", false
}

// headerID is the header that Debezium's Event Router gives every record.
const headerID = "id"
