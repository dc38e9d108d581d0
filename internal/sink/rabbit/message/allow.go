// Whether an event may go where it is going.

package message

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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
