// What the broker sends back because it has no queue for it. A message comes back whole, and may be
// several times as large as its row: with many lanes and an exchange that routes nothing, bodies
// that wait to be looked at were more than a container's 256 MiB (TestHostileRowsDeferred). So they
// are dropped while a call waits for room, for its turn to make a large message, and for answers.

package conn

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Return is a message that came back: where it was sent, its position header ("" without one), and
// what the broker says.
type Return struct {
	Exchange, RoutingKey, Position string
	Code                           uint16
	Text                           string
}

// KeepReturn keeps what was received from Returns, without its body and headers. ok is false when
// the channel has ended: nothing more comes back on it.
//
// amqp091 keeps the last body and the last headers that came back on a channel until others do. So
// a channel with large ones is not used for another call.
func (c *Channel) KeepReturn(r *amqp.Return, ok bool) {
	if !ok {
		c.Returns = nil
		return
	}
	c.heavy = len(r.Body) > keptBody || len(r.Headers) > keptHeaders
	position, _ := r.Headers[sink.HeaderPosition].(string)
	c.returned = append(c.returned, Return{r.Exchange, r.RoutingKey, position, r.ReplyCode, r.ReplyText})
}

// What a channel may keep of a message that came back: bytes of its body, and headers.
const (
	keptBody    = 64 << 10
	keptHeaders = 1000
)

// TakeReturns returns all that came back since the last call of it. When an answer to a message has
// been seen, its return is among them.
func (c *Channel) TakeReturns() []Return {
	for {
		select {
		case r, ok := <-c.Returns:
			c.KeepReturn(&r, ok)
			continue
		default:
		}
		all := c.returned
		c.returned = nil
		return all
	}
}

// AwaitTurn sends to turn, and keeps what comes back until it could.
func (c *Channel) AwaitTurn(turn chan<- struct{}) {
	for {
		select {
		case turn <- struct{}{}:
			return
		case r, ok := <-c.Returns:
			c.KeepReturn(&r, ok)
		}
	}
}
