// Where an event goes: exchange and routing key.

package message

import (
	"bytes"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Place returns two digests of an event's destination: of its exchange, and of the pair. A part
// without a value has 0. The reader calls it for every event.
func (l *Layout) Place(ev *event.Event) (exchangeOrTopic, dest uint64) {
	if ev.Fault != nil {
		return 0, 0 // it goes nowhere
	}
	if r := ev.Route; r != nil {
		return digests(r.Name, r.RoutingKey)
	}
	if l.Profiled(ev) {
		l.placedBy(ev, func(exchange, routingKey []byte) { exchangeOrTopic, dest = digests(exchange, routingKey) })
		return exchangeOrTopic, dest
	}
	if l.dest != 0 {
		return l.exchangeOrTopic, l.dest
	}
	// an AMQP name has 255 at most; one that is longer, and cannot be sent, is put on the heap
	var room [256]byte
	if exchangeOrTopic = l.exchangeOrTopic; exchangeOrTopic == 0 {
		name, ok := l.exchange.Append(room[:0], ev)
		if !ok {
			return 0, 0
		}
		exchangeOrTopic = sink.ExchangeOrTopicOf(name)
	}
	routingKey, ok := l.routingKey.Append(room[:0], ev)
	if !ok {
		return exchangeOrTopic, 0
	}
	return exchangeOrTopic, sink.DestOfPair(exchangeOrTopic, routingKey)
}

// digests returns Place's digests of a destination by its names.
func digests(exchange, routingKey []byte) (exchangeOrTopic, dest uint64) {
	if exchange == nil {
		return 0, 0
	}
	exchangeOrTopic = sink.ExchangeOrTopicOf(exchange)
	if routingKey == nil {
		return exchangeOrTopic, 0
	}
	return exchangeOrTopic, sink.DestOfPair(exchangeOrTopic, routingKey)
}

// Route names where an event goes. A template without a value leaves its part nil.
func (l *Layout) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	if l.Profiled(ev) {
		var r event.Route
		l.placedBy(ev, func(exchange, routingKey []byte) {
			r = event.Route{Name: bytes.Clone(exchange), RoutingKey: bytes.Clone(routingKey)}
		})
		return r
	}
	return event.Route{Name: l.exchange.name(ev), RoutingKey: l.routingKey.name(ev)}
}

// Shown are an exchange and a routing key as logs, status and spans may show them: what is made
// from an ordering key, which may be about a person, is shown as its template. The destination of
// copies of dead letters does not depend on an event.
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
func (t *template) name(ev *event.Event) []byte {
	value, ok := t.Append([]byte{}, ev)
	if !ok {
		return nil
	}
	return value
}
