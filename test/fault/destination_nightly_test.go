//go:build nightly

package fault

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// Rows name 20,000 routing keys for which no queue is bound. Other events go on, the relay asks for
// no more than the hundred a second of probes and as many rows beside, and once there is a queue
// everything arrives.
func TestThousandsOfRoutingKeysWithoutAQueue(t *testing.T) {
	stand.Parallel(t)
	const n = 20_000
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.Bind(orders, "order.placed")
	s.Unbind(orders, "#")
	r := s.StartWatched()
	s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', 'lost-' || n, 'lost-' || n, jsonb_build_object('key', 'lost-' || n, 'seq', 1) FROM generate_series(1, $1::int) n`, n)
	s.AwaitRows(checker.Deferred, n)
	refused := func() float64 { return s.Metric(r, `outbox_rejections_total{class="destination",reason="unroutable"}`) }
	// each is refused, and half of them, for which there are no pauses any more, once again at once
	s.Until("the probes to take turns", func() bool { return refused() > 1.7*n })
	before, began := refused(), time.Now()
	for i := range 20 {
		var id string
		s.Query([]any{&id}, stand.InsertReturning("outbox", "order", fmt.Sprint("healthy-", i)))
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{id}))
	}
	s.Until("ten seconds to pass", func() bool { return time.Since(began) > 10*time.Second })
	if rate := (refused() - before) / time.Since(began).Seconds(); rate > 250 {
		t.Errorf("%.0f refused events a second", rate)
	}
	s.Bind(orders, "#")
	s.AwaitEmpty()
	s.Must(s.Consumer.WaitCount(s.Context(), n+20))
	stopped(s, r, 0)
}

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
		name: "no majority", reason: "unconfirmed", late: -1,
		place: func(*testing.T) stand.Place { return stand.OnRabbitMQ(cluster.Nodes[0]) },
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
