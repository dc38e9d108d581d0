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

func Pair(name, routingKey string) string {
	if len(routingKey) > MaxShortString {
		return Exchange(name)
	}
	return fmt.Sprintf("%s, routing key %q", Exchange(name), routingKey)
}

func Invalid(detail string) *sink.Fault {
	return &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: detail}
}

func TooLarge(destination string, size, limit int) *sink.Fault {
	return &sink.Fault{
		Class: sink.Permanent, Reason: sink.TooLarge, Destination: destination,
		Text: fmt.Sprintf("the body has %d bytes, the limit is %d", size, limit),
	}
}
