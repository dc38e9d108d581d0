//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	ofOneRabbitMQ = append(ofOneRabbitMQ,
		ofOne[*rabbitserver.Rabbit]{"RestartedUnderLoad", func(t *testing.T, rmq *rabbitserver.Rabbit) {
			restartedUnderLoad(t, stand.OnRabbitMQ(rmq), "commit", "none")
		}},
		ofOne[*rabbitserver.Rabbit]{"MemoryAlarm", memoryAlarm})
}

// The same of a Kafka of one node, as part of TestBroker does on RabbitMQ.
func TestKafkaBroker(t *testing.T) {
	stand.Parallel(t)
	server := stand.OnKafka(stand.OwnKafka(t, kafkaserver.Options{}), stand.Topics{})
	t.Run("RestartedUnderLoad", func(t *testing.T) { restartedUnderLoad(t, server, "key", "commit") })
	t.Run("KilledUnderLoad", func(t *testing.T) { killedUnderLoad(t, server, "pipelined", "none") })
}

// memoryAlarm: while the broker blocks its publishers, for longer than confirm_timeout, the relay
// waits; nothing is sent a second time.
func memoryAlarm(t *testing.T, rmq *rabbitserver.Rabbit) {
	s := stand.New(t, stand.OnRabbitMQ(rmq))
	s.Delivery = "confirm_timeout: 4s"
	r := s.Start()
	stop := s.Load(200)
	s.More(100)
	s.Must(rmq.Alarm(s.Context(), true))
	s.Unready(r, "blocked")
	s.WriteAt(300, 50) // takes longer than confirm_timeout
	s.Unready(r, "blocked")
	s.Must(rmq.Alarm(s.Context(), false))
	s.Ready(r)
	s.More(100)
	stop()
	s.Check(0)
}

// A broker that stops in order forgets nothing: what arrives twice was in the in-flight budget when
// it went.
func restartedUnderLoad(t *testing.T, server stand.Server, orderings ...string) {
	t.Helper()
	stands, stop := underLoad(t, server, orderings)
	s := stands[0]
	s.Must(server.Stop(s.Context()))
	s.Must(server.Start(s.Context()))
	for _, s := range stands {
		s.More(50)
	}
	stop()
	for _, s := range stands {
		t.Log(s.Ordering)
		s.Check(s.Repeats(budget))
	}
}
