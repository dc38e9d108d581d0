package rabbit

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// This file finds the events whose messages came back. The broker acks those, too, so one that is not found is an event lost.

// returned drains the channel's returns, and gives each to its event, by the event's place in the call.
func (l *lane) returned(ch *channel) map[int]amqp.Return {
	var all []amqp.Return
	for {
		select {
		case r, ok := <-ch.returns:
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

// paired gives the returns to the events of the round: by the position header that each message of the relay's own carries, and
// by the header id where a profile makes the messages, which have no position.
//
// Ids need not be unique. Every event of the round that carries the id of a return counts as returned: one that was routed is sent
// again, which costs a duplicate, where the other guess would cost an event. So does every event of a profile when a return has an id
// that none of them carries, which no broker has been seen to do.
func (l *lane) paired(all []amqp.Return) map[int]amqp.Return {
	if len(all) == 0 {
		return nil
	}
	found := map[int]amqp.Return{}
	byPosition, byID := map[outbox.Position]amqp.Return{}, map[string]amqp.Return{}
	for _, r := range all {
		if pos, ok := positionOf(r.Headers); ok {
			byPosition[pos] = r
		}
		if id, ok := idOf(r.Headers); ok {
			byID[id] = r
		}
	}
	used := map[string]bool{}
	for _, s := range l.sent {
		ev := l.events[s.index]
		if !l.message.layout.profiled(ev) {
			if r, ok := byPosition[ev.Position]; ok {
				found[s.index] = r
			}
			continue
		}
		if fault := l.message.build(ev); fault != nil {
			continue // cannot be: it was sent
		}
		id, _ := idOf(l.message.pub.Headers)
		if r, ok := byID[id]; ok {
			found[s.index], used[id] = r, true
		}
	}
	if l.message.layout.router != nil {
		l.suspectAll(all, used, found)
	}
	return found
}

// suspectAll has every event of a profile count as returned when there is a return that is nobody's.
func (l *lane) suspectAll(all []amqp.Return, used map[string]bool, found map[int]amqp.Return) {
	for _, r := range all {
		id, ok := idOf(r.Headers)
		if _, own := positionOf(r.Headers); ok && used[id] || own {
			continue
		}
		for _, s := range l.sent {
			if _, paired := found[s.index]; !paired && l.message.layout.profiled(l.events[s.index]) {
				found[s.index] = r
			}
		}
	}
}

// positionOf is the position that a message of the relay's own carries.
func positionOf(headers amqp.Table) (outbox.Position, bool) {
	text, _ := headers[headerPosition].(string)
	pos, err := outbox.ParsePosition(text)
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
