package fault

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// ofOneRabbitMQ are the tests that stop, kill or reconfigure a RabbitMQ. More are in
// broker_all_test.go.
var ofOneRabbitMQ = []ofOne[*rabbitserver.Rabbit]{
	{"TooLargeAmongSmall", func(t *testing.T, rmq *rabbitserver.Rabbit) { tooLargeAmongSmall(poisonedOnRabbitMQ(t, rmq)) }},
	{"KilledUnderLoad", func(t *testing.T, rmq *rabbitserver.Rabbit) {
		killedUnderLoad(t, stand.OnRabbitMQReading(rmq, consumers.ConsumerOptions{Quorum: true, Prefetch: prefetch}), "key", "commit", "pipelined")
	}},
}

// ofOne is a test that has a server for itself, which it gives to the next one.
type ofOne[Server any] struct {
	name string
	test func(*testing.T, Server)
}

// They run one after the other, on a broker of their own.
func TestBroker(t *testing.T) {
	t.Parallel()
	t.Run("RabbitMQ", func(t *testing.T) {
		stand.Parallel(t)
		rmq, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{Config: map[string]string{"max_message_size": fmt.Sprint(limit)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rmq.Close(); err != nil {
				t.Error(err)
			}
		})
		for _, c := range ofOneRabbitMQ {
			t.Run(c.name, func(t *testing.T) { c.test(t, rmq) })
		}
	})
}

const budget, prefetch = 60, 40

// underLoad are stands with a relay under load, one for each ordering. More has arrived at each
// than may arrive twice.
func underLoad(t *testing.T, server stand.Server, orderings []string) (stands []*stand.Stand, stop func()) {
	t.Helper()
	var stops []func()
	for _, ordering := range orderings {
		s := stand.New(t, server)
		s.Ordering, s.Delivery = ordering, fmt.Sprintf("max_in_flight: %d, confirm_timeout: 10s", budget)
		s.WatchFlush()
		s.Start()
		stops = append(stops, s.Load(100))
		stands = append(stands, s)
	}
	for _, s := range stands {
		s.Must(s.Consumer.WaitCount(s.Context(), 2*(budget+prefetch)))
	}
	return stands, func() {
		t.Helper()
		for _, stop := range stops {
			stop()
		}
	}
}

// A RabbitMQ that is killed may forget which messages were taken; a quorum queue writes it down,
// and gives again at most what it had given out and not seen acknowledged. Beside the in-flight
// budget that is all that may arrive twice, and more than so many had arrived: a relay that began
// again, or a queue that forgot, would be seen. A Kafka that is killed finds its producers' numbers
// in its log.
func killedUnderLoad(t *testing.T, server stand.Server, orderings ...string) {
	t.Helper()
	stands, stop := underLoad(t, server, orderings)
	s := stands[0]
	s.Must(server.Kill())
	s.Must(server.Start(s.Context()))
	for _, s := range stands {
		s.More(50)
	}
	stop()
	for _, s := range stands {
		t.Log(s.Ordering)
		s.Check(s.Repeats(budget + prefetch))
	}
}
