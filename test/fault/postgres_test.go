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
	stand.OnEach(t, func(s *stand.Stand) {
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
	})
}

// The server stops, in the way named, with a healthy relay or while the broker is away and events wait in the relay. The
// relay and the writers wait for both; the process remembers, so what arrives twice was on the wire when the broker went:
// at most one event of each key. How long the server takes is compared with a stop under the same load without a relay.
func TestPostgresStops(t *testing.T) {
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
	var alone time.Duration
	t.Run("without a relay", func(t *testing.T) {
		s := stand.On(t, pg, stand.SharedRabbitMQ(t))
		stop := s.Load(200)
		s.Until(time.Minute, "some rows", func() bool { return s.Committed() >= 100 })
		alone, err = pg.Stop("fast")
		s.Must(err)
		t.Logf("PostgreSQL stopped in %s", alone)
		s.Must(pg.Start(s.Within(time.Minute)))
		stop()
	})
	for _, c := range []struct {
		name, mode string
		brokerAway bool
		more       time.Duration // than without a relay
	}{
		// The relay lets go as soon as what it has read is confirmed, some round trips: 0.5 s is promised, and as much again is
		// for this machine, on which two other tests run.
		{"fast, with a healthy relay", "fast", false, time.Second},
		// After 5 s it lets go of what nobody confirms.
		{"fast, with the broker away", "fast", true, 5500 * time.Millisecond},
		// Nobody is waited for.
		{"immediate, with the broker away", "immediate", true, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			stand.Each(t, func(t *testing.T, place stand.Place) {
				s := stand.On(t, pg, place)
				s.WatchFlush()
				r := s.Start()
				stop := s.Load(200)
				s.More(100)
				duplicates := 0
				if c.brokerAway {
					duplicates = s.Keys
					s.Broker.Cut()
					s.Unready(r, "broker down")
					s.Write(50)
				}
				took, err := pg.Stop(c.mode)
				s.Must(err)
				t.Logf("PostgreSQL stopped in %s, in %s without a relay", took, alone)
				if took > alone+c.more {
					t.Errorf("that is more than %s later", c.more)
				}
				s.Unready(r, "waiting for postgres")
				s.Must(pg.Start(s.Within(time.Minute)))
				if c.brokerAway {
					s.Must(s.Broker.Mend())
				}
				s.Leads(s.Ready(r))
				s.More(100)
				stop()
				s.Check(s.Repeats(duplicates))
			})
		})
	}
}
