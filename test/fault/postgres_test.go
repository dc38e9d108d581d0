package fault

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The server ends the stream, again and again: the process remembers what was confirmed, so nothing is sent twice.
func TestWalsenderTerminatedUnderLoad(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t)
	s.WatchFlush()
	r := s.Start()
	stop := s.Load(300)
	for range 5 {
		s.More(50)
		s.SQL(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, s.Slot)
		s.More(50)
		s.Leads(r)
	}
	stop()
	s.Check(0)
}

// The server stops, in the way named, while the broker is away and events wait in the relay. The relay and the writers
// wait for both; the process remembers, so what arrives twice was on the wire when the broker went: at most one event of
// each key.
func TestPostgresStopsWhileTheBrokerIsAway(t *testing.T) {
	stand.Parallel(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pg, err := devenv.StartPostgres(ctx, devenv.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, mode := range []string{"fast", "immediate"} {
		t.Run(mode, func(t *testing.T) {
			s := stand.On(t, pg, devenv.SharedRabbitMQ(t))
			s.WatchFlush()
			r := s.Start()
			stop := s.Load(200)
			s.More(100)
			s.Broker.Cut()
			s.Unready(r, "broker down")
			s.Write(50)
			took, err := pg.Stop(mode)
			s.Must(err)
			t.Logf("PostgreSQL stopped in %s", took)
			s.Unready(r, "waiting for postgres")
			s.Must(pg.Start(s.Within(time.Minute)))
			s.Must(s.Broker.Mend())
			s.Leads(s.Ready(r))
			s.More(100)
			stop()
			s.Check(s.Keys)
		})
	}
}
