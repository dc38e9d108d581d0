//go:build testall

package fault

import (
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
	}...)
}
