// Why an event can never become a message, and how a destination is named.

package message

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Exchange and Pair name a destination as sink.Fault does.
func Exchange(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return fmt.Sprintf("exchange %q", name)
}

// Pair names an exchange with a routing key, or alone when the key is longer than AMQP allows.
func Pair(name, routingKey string) string {
	if len(routingKey) > MaxShortString {
		return Exchange(name)
	}
	return fmt.Sprintf("%s, routing key %q", Exchange(name), routingKey)
}

// TooLarge is the permanent fault of an event whose body is over the limit; both are in bytes.
func TooLarge(destination string, size, limit int) *sink.Fault {
	return &sink.Fault{
		Class: sink.Permanent, Reason: sink.TooLarge, Destination: destination,
		Text: fmt.Sprintf("the body has %d bytes, the limit is %d", size, limit),
	}
}

// NotAllowed is the fault of an event whose exchange or routing key no pattern allows. One that has
// no name, or a name that is too long, is left to Build, as is a name that all events have: the
// configuration was checked with it.
func (m *Message) NotAllowed(ev *event.Event) *sink.Fault {
	if m.Layout.allow == nil { // the usual case, which is inlined
		return nil
	}
	return m.notAllowed(ev, m.Layout.allow)
}

func (m *Message) notAllowed(ev *event.Event, allow *Allow) *sink.Fault {
	if ev.Fault != nil || ev.Route == nil && m.Layout.dest != 0 {
		return nil
	}
	if m.Destination(ev) != nil || len(m.Exchange)|len(m.RoutingKey) > MaxShortString {
		return nil
	}
	switch {
	case !sink.Allows(allow.Exchange, m.Exchange):
		exchange, _ := m.Layout.Shown(m.Copy, m.Exchange, m.RoutingKey)
		return sink.NotAllowedFault(Exchange(exchange), Exchange(exchange), "sink.rabbitmq.allow.exchange", true)
	case !sink.Allows(allow.RoutingKey, m.RoutingKey):
		_, routingKey := m.Layout.Shown(m.Copy, m.Exchange, m.RoutingKey)
		return sink.NotAllowedFault(m.DestinationText(), fmt.Sprintf("routing key %q", routingKey), "sink.rabbitmq.allow.routing_key", false)
	}
	return nil
}

// nowhere is the permanent fault of an event without an exchange, or without a routing key when it
// has an exchange.
func nowhere(hasExchange bool) *sink.Fault {
	if hasExchange {
		return noRoutingKey
	}
	return noExchange
}

// They are shared by all events concerned.
var (
	noExchange   = sink.PermanentFault(sink.NullInTemplate, "exchange has a NULL in its template")
	noRoutingKey = sink.PermanentFault(sink.NullInTemplate, "routing key has a NULL in its template")
)
