// Which exchanges may return what they took.

package rabbit

import "github.com/cdc-relay/cdc-relay/internal/sink"

// Unroutable says what a returned message of an exchange means, by the first pattern of its name.
//
// A return says that the exchange gave a message to no queue now. Mostly nobody is bound, so the
// event waits. But some types of exchanges give a message to no queue and have taken it all the
// same: they keep it for later (x-delayed-message), or have given it to the queues before
// (x-message-deduplication). To a publisher all of these look alike. Each repeat would be one more
// copy, and the event's key would wait for ever. Only the user knows, and says so for these
// exchanges: ignore.
//
// Then the ack decides alone, as it does for a message that was routed. Nothing else can be lost by
// it: the broker acks a message when each queue that it was given to has it, a nack and a closed
// channel are refusals as before, and a return without its ack leaves the event in doubt. What is
// dropped is what the exchange gave to no queue and has not kept: what the user says he does not
// want. It is counted (Status.Ignored).
type Unroutable []UnroutableOf

// UnroutableOf are the exchanges that match a pattern, as those of sink.Allow.
type UnroutableOf struct {
	Exchange string
	Ignore   bool
}

// ignored reports whether a return of the exchange is ignored. The default is that it is not.
func (u Unroutable) ignored(exchange string) bool {
	for _, of := range u {
		if sink.Allows(sink.Allow{of.Exchange}, exchange) {
			return of.Ignore
		}
	}
	return false
}

// keepers are the types of exchanges that are known to answer NO_ROUTE for what they took.
var keepers = map[string]string{
	"x-delayed-message":       "keeps messages back",
	"x-message-deduplication": "drops repeats of a message",
	"x-recent-history":        "keeps messages for queues that are bound later",
	"x-lvc":                   "keeps the last message for queues that are bound later",
}
