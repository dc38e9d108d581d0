package fault

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// These tests stop or reconfigure a broker, one after the other on a broker of their own.
func TestBroker(t *testing.T) {
	t.Parallel()
	t.Run("RabbitMQ", func(t *testing.T) {
		stand.Parallel(t)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		rmq, err := devenv.StartRabbitMQ(ctx, devenv.RabbitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rmq.Close(); err != nil {
				t.Error(err)
			}
		})
		t.Run("MemoryAlarm", func(t *testing.T) { memoryAlarm(t, rmq) })
		t.Run("RestartedUnderLoad", func(t *testing.T) { restartedUnderLoad(t, stand.OnRabbitMQ(rmq)) })
		t.Run("KilledUnderLoad", func(t *testing.T) {
			killedUnderLoad(t, stand.OnRabbitMQReading(rmq, devenv.ConsumerOptions{Quorum: true, Prefetch: prefetch}))
		})
	})
	t.Run("Kafka", func(t *testing.T) {
		stand.Parallel(t)
		t.Run("OfOneBroker", func(t *testing.T) {
			server := stand.OnKafka(stand.OwnKafka(t, devenv.KafkaOptions{}), stand.Topics{})
			t.Run("RestartedUnderLoad", func(t *testing.T) { restartedUnderLoad(t, server) })
			t.Run("KilledUnderLoad", func(t *testing.T) { killedUnderLoad(t, server) })
		})
		t.Run("OfThreeBrokers", ofThreeBrokers) // after the other one: they are processes of some size
	})
}

// memoryAlarm: while the broker blocks its publishers, for longer than confirm_timeout, the relay waits; nothing is sent
// a second time.
func memoryAlarm(t *testing.T, rmq *devenv.Rabbit) {
	s := stand.New(t, stand.OnRabbitMQ(rmq))
	s.Delivery = "confirm_timeout: 1s"
	r := s.Start()
	stop := s.Load(200)
	s.More(100)
	s.Must(rmq.Alarm(s.Within(time.Minute), true))
	s.Unready(r, "blocked")
	s.WriteAt(300, 100) // takes three times confirm_timeout
	s.Unready(r, "blocked")
	s.Must(rmq.Alarm(s.Within(time.Minute), false))
	s.Ready(r)
	s.More(100)
	stop()
	s.Check(0)
}

const window, prefetch = 200, 50

// orderings are stands with a relay under load, one for each ordering. More has arrived at each than may arrive twice.
func orderings(t *testing.T, server stand.Server) (stands []*stand.Stand, stop func()) {
	t.Helper()
	var stops []func()
	for _, ordering := range []string{"key", "pipelined", "commit", "none"} {
		s := stand.New(t, server)
		s.Ordering, s.Delivery = ordering, fmt.Sprintf("window: %d, confirm_timeout: 2s", window)
		s.WatchFlush()
		s.Start()
		stops = append(stops, s.Load(100))
		stands = append(stands, s)
	}
	for _, s := range stands {
		s.Must(s.Consumer.WaitCount(s.Within(time.Minute), 2*(window+prefetch)))
	}
	return stands, func() {
		t.Helper()
		for _, stop := range stops {
			stop()
		}
	}
}

// A broker that stops in order forgets nothing: what arrives twice was in the window when it went.
func restartedUnderLoad(t *testing.T, server stand.Server) {
	stands, stop := orderings(t, server)
	s := stands[0]
	s.Must(server.Stop(s.Within(time.Minute)))
	s.Must(server.Start(s.Within(time.Minute)))
	for _, s := range stands {
		s.More(50)
	}
	stop()
	for _, s := range stands {
		t.Log(s.Ordering)
		s.Check(s.Repeats(window))
	}
}

// A RabbitMQ that is killed may forget which messages were taken; a quorum queue writes it down, and gives again at most
// what it had given out and not seen acknowledged. Beside the window that is all that may arrive twice, and more than so many
// had arrived: a relay that began anew, or a queue that forgot, would be seen. A Kafka that is killed finds its producers'
// numbers in its log.
func killedUnderLoad(t *testing.T, server stand.Server) {
	stands, stop := orderings(t, server)
	s := stands[0]
	s.Must(server.Kill())
	s.Must(server.Start(s.Within(time.Minute)))
	for _, s := range stands {
		s.More(50)
	}
	stop()
	for _, s := range stands {
		t.Log(s.Ordering)
		s.Check(s.Repeats(window + prefetch))
	}
}
