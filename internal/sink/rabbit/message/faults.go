// Why an event can never become a message, and how a destination is named.

package message

import (
	"fmt"

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
