// This file finds the events whose messages were returned. The broker acks those, too, so an event
// that is not found is lost.

package rabbit

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

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

// returnID identifies the event of a return without a position: the header id, and where its
// message was going.
type returnID struct{ id, exchange, routingKey string }

// paired assigns the returns to the events of the round: by the position header that each message
// in the relay's own form carries. Messages of a profile have no position: they are assigned by the
// header id, the exchange and the routing key.
//
// Ids need not be unique. Every event of the round that was going there with the id of a return
// counts as returned: one that was routed is sent again, which costs a duplicate, where the other
// guess would cost an event. One that was going elsewhere does not: its own destination would be
// paused for another's fault. When a return fits no event, which has never been observed, every
// event of a profile counts as returned.
func (l *lane) paired(all []amqp.Return) map[int]amqp.Return {
	if len(all) == 0 {
		return nil
	}
	found := map[int]amqp.Return{}
	byPosition, byID := map[event.Position]amqp.Return{}, map[returnID]amqp.Return{}
	for _, r := range all {
		if pos, ok := positionOf(r.Headers); ok {
			byPosition[pos] = r
		}
		if id, ok := idOf(r.Headers); ok {
			byID[returnID{id, r.Exchange, r.RoutingKey}] = r
		}
	}
	used, copies := map[returnID]bool{}, map[event.Position]bool{}
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
		if r, ok := byID[returnID{id, l.message.Exchange, l.message.RoutingKey}]; ok {
			// the message's strings are valid until the next Build
			found[s.index], used[returnID{id, r.Exchange, r.RoutingKey}] = r, true
		}
	}
	if l.message.Layout.Router != nil {
		l.suspectAll(all, used, copies, found)
	}
	return found
}

// suspectAll counts every event of a profile as returned when a return fits no event. used and
// copies are the returns that fit one: a position alone does not prove that, since a row may bring
// a header of that name.
func (l *lane) suspectAll(all []amqp.Return, used map[returnID]bool, copies map[event.Position]bool, found map[int]amqp.Return) {
	for _, r := range all {
		id, ok := idOf(r.Headers)
		if pos, own := positionOf(r.Headers); ok && used[returnID{id, r.Exchange, r.RoutingKey}] || own && copies[pos] {
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
