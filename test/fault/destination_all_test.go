//go:build testall

package fault

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	brokenDestinations = append(brokenDestinations, []broken{
		{
			// The types of a key's events take turns; only one of them is not taken any more.
			name: "RabbitMQ/binding of one type removed", place: onShared, reason: "unroutable",
			set: func(s *stand.Stand) {
				for _, key := range []string{"order.placed", "order.paid", "order.shipped"} {
					s.Bind(orders, key)
				}
				s.Unbind(orders, "#")
			},
			breaks: func(s *stand.Stand) { s.Unbind(orders, "order.paid") },
			fix:    func(s *stand.Stand) { s.Bind(orders, "order.paid") },
		},
		{
			name: "RabbitMQ/right taken", place: onShared, reason: "not_permitted",
			late: 20, // on the channel that is closed: of each key an event for the other exchange
			breaks: func(s *stand.Stand) {
				s.Must(s.RabbitMQ.Server.AllowWrite(s.Context(), s.RabbitMQ.VHost, "^(amq.default|"+healthy+")$"))
				s.Broker.Reset() // a channel goes on writing where it has written
			},
			fix: func(s *stand.Stand) {
				s.Must(s.RabbitMQ.Server.AllowWrite(s.Context(), s.RabbitMQ.VHost, ".*"))
			},
		},
		{
			name: "RabbitMQ/queue full", place: onShared, reason: "nacked",
			set: func(s *stand.Stand) {
				s.Unbind(orders, "#")
				s.MakeQueue("full", orders, "#", amqp.Table{"x-max-length": 30, "x-overflow": "reject-publish"})
			},
			breaks: func(*stand.Stand) {}, // nobody reads it
			fix:    func(s *stand.Stand) { s.Also("full") },
		},
	}...)
}
