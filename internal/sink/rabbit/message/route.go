package message

import (
	"bytes"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Place digests where an event goes: its exchange, and the pair. What has no value has 0. The reader calls it for every event.
func (l *Layout) Place(ev *outbox.Event) (unit, dest uint64) {
	if ev.Fault != nil {
		return 0, 0 // it goes nowhere
	}
	if r := ev.Route; r != nil {
		return digests(r.Name, r.RoutingKey)
	}
	if l.Profiled(ev) {
		l.placedBy(ev, func(exchange, routingKey []byte) { unit, dest = digests(exchange, routingKey) })
		return unit, dest
	}
	if l.dest != 0 {
		return l.unit, l.dest
	}
	var room [256]byte // an AMQP name has 255 at most; one that is longer, and cannot be sent, is put on the heap
	if unit = l.unit; unit == 0 {
		name, ok := l.exchange.Append(room[:0], ev)
		if !ok {
			return 0, 0
		}
		unit = sink.UnitOf(name)
	}
	routingKey, ok := l.routingKey.Append(room[:0], ev)
	if !ok {
		return unit, 0
	}
	return unit, sink.DestOfPair(unit, routingKey)
}

// digests are place's of a destination by its names.
func digests(exchange, routingKey []byte) (unit, dest uint64) {
	if exchange == nil {
		return 0, 0
	}
	unit = sink.UnitOf(exchange)
	if routingKey == nil {
		return unit, 0
	}
	return unit, sink.DestOfPair(unit, routingKey)
}

// Route names where an event goes. A template without a value leaves its part nil.
func (l *Layout) Route(ev *outbox.Event) outbox.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	if l.Profiled(ev) {
		var r outbox.Route
		l.placedBy(ev, func(exchange, routingKey []byte) {
			r = outbox.Route{Name: bytes.Clone(exchange), RoutingKey: bytes.Clone(routingKey)}
		})
		return r
	}
	return outbox.Route{Name: l.exchange.name(ev), RoutingKey: l.routingKey.name(ev)}
}

// Shown are an exchange and a routing key as logs, status and spans may show them: what is made from an ordering key,
// which may be about a person, stands there as its template. Copies of dead letters go where no event has a say.
func (l *Layout) Shown(isCopy bool, exchange, routingKey string) (string, string) {
	if l.exchange.personal && !isCopy {
		exchange = l.exchange.String()
	}
	if l.routingKey.personal && !isCopy {
		routingKey = l.routingKey.String()
	}
	return exchange, routingKey
}

// name is the template's value as bytes of its own; nil when it has none.
func (t *template) name(ev *outbox.Event) []byte {
	value, ok := t.Append([]byte{}, ev)
	if !ok {
		return nil
	}
	return value
}
