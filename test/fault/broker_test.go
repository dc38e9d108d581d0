package fault

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// These tests stop or reconfigure a broker, one after the other on a broker of their own.
func TestBroker(t *testing.T) {
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
	t.Run("RestartedUnderLoad", func(t *testing.T) { restartedUnderLoad(t, rmq) })
	t.Run("KilledUnderLoad", func(t *testing.T) { killedUnderLoad(t, rmq) })
}

// memoryAlarm: while the broker blocks its publishers, for longer than confirm_timeout, the relay waits; nothing is sent
// a second time.
func memoryAlarm(t *testing.T, rmq *devenv.Rabbit) {
	s := stand.On(t, devenv.SharedPostgres(t), rmq)
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

// orderings are stands with a relay under load, one for each ordering.
func orderings(t *testing.T, rmq *devenv.Rabbit) (stands []*stand.Stand, stop func()) {
	t.Helper()
	var stops []func()
	for _, ordering := range []string{"key", "pipelined", "commit", "none"} {
		s := stand.On(t, devenv.SharedPostgres(t), rmq)
		s.Ordering, s.Delivery = ordering, "window: 200, confirm_timeout: 2s"
		s.WatchFlush()
		s.Start()
		stops = append(stops, s.Load(100))
		s.More(50)
		stands = append(stands, s)
	}
	return stands, func() {
		t.Helper()
		for _, stop := range stops {
			stop()
		}
	}
}

// A broker that stops in order forgets nothing: what arrives twice was in the window when it went.
func restartedUnderLoad(t *testing.T, rmq *devenv.Rabbit) {
	stands, stop := orderings(t, rmq)
	s := stands[0]
	s.Must(rmq.Stop(s.Within(time.Minute)))
	s.Must(rmq.Start(s.Within(time.Minute)))
	for _, s := range stands {
		s.More(50)
	}
	stop()
	for _, s := range stands {
		t.Log(s.Ordering)
		s.Check(200)
	}
}

// A broker that is killed forgets which messages were taken: it may give the consumer again what it has had before, and
// not say so. So everything that arrived before the kill is in the bound, beside the window.
func killedUnderLoad(t *testing.T, rmq *devenv.Rabbit) {
	stands, stop := orderings(t, rmq)
	s := stands[0]
	s.Must(rmq.Kill())
	bounds := make([]int, len(stands))
	for i, s := range stands {
		bounds[i] = 200 + len(s.Consumer.Deliveries())
	}
	s.Must(rmq.Start(s.Within(time.Minute)))
	for _, s := range stands {
		s.More(50)
	}
	stop()
	for i, s := range stands {
		t.Log(s.Ordering)
		s.Check(bounds[i])
	}
}
