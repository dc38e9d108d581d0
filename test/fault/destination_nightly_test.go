//go:build nightly

package fault

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A queue of two brokers is without a majority while one of them is away, and confirms nothing.
// Beside it is a queue of one broker, which does not mind: its events go on, though every key has
// some for the other queue too, so that the time comes when nothing else is on its way. What was
// sent meanwhile is in the queue when the other broker is back, and was deferred.
func TestQuorumQueueWithoutMajority(t *testing.T) {
	stand.Parallel(t)
	cluster, err := rabbitserver.StartRabbitCluster(t.Context(), 2, rabbitserver.Options{})
	await.Must(t, err)
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	broken{
		place: stand.OnRabbitMQ(cluster.Nodes[0]), reason: "unconfirmed", late: -1,
		set: func(s *stand.Stand) {
			s.Delivery = "confirm_timeout: 2s"
			s.Unbind(orders, "#")
			s.MakeQueue("quorum", orders, "#", amqp.Table{"x-queue-type": "quorum"})
			s.Also("quorum")
		},
		breaks: func(s *stand.Stand) { s.Must(cluster.Nodes[1].Kill()) },
		fix:    func(s *stand.Stand) { s.Must(cluster.Nodes[1].Start(s.Context())) },
	}.meet(t)
}
