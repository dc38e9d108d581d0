// Where an event goes: exchange and routing key.

package message

import (
	"bytes"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Place returns two digests of an event's destination: of its exchange, and of the pair. A part
// without a value has 0. The reader calls it for every event.
func (l *Layout) Place(ev *event.Event) (exchangeOrTopic, dest uint64) {
	switch {
	case ev.Fault != nil:
		return 0, 0 // it goes nowhere
	case ev.Route != nil:
		return digests(ev.Route.Name, ev.Route.RoutingKey)
	case l.dest != 0:
		return l.exchangeOrTopic, l.dest
	}
	rec := records.Get().(*sink.Record)   //nolint:forcetypeassert // the pool has no others
	_ = l.Large.Place(l.encoder, ev, rec) // the event is refused when it is built
	exchangeOrTopic, dest = digests(rec.Exchange, rec.RoutingKey)
	rec.Forget()
	records.Put(rec)
	return exchangeOrTopic, dest
}

// records are scratch space to compute where an event goes, for several goroutines.
var records = sync.Pool{New: func() any { return new(sink.Record) }}

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

// Route names where an event goes. A part that has no value is nil. An event of which there is no
// message has a route all the same, as far as there is one: when it is fixed and replayed it goes
// there.
func (l *Layout) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	var rec sink.Record
	_ = l.Large.Place(l.encoder, ev, &rec) // the event is refused when it is built
	return event.Route{Name: bytes.Clone(rec.Exchange), RoutingKey: bytes.Clone(rec.RoutingKey)}
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
