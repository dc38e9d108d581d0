package fault

import (
	"context"
	"regexp"
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
// at most one event of each key. A server that is stopped fast waits for its walsenders for as long as they last, so that it
// stops at all is the relay's doing: it lets go when all is confirmed, or soon without that.
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
	for _, c := range []struct {
		name, mode string
		brokerAway bool
		says       string // of what the relay lets go; "": it does not come to that
	}{
		{"fast, with a healthy relay", "fast", false, `"unsettled":0[,}]`},
		{"fast, with the broker away", "fast", true, `"unsettled":[1-9]`},
		{"immediate, with the broker away", "immediate", true, ""},
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
				t.Logf("PostgreSQL stopped in %s", took)
				if c.says != "" {
					s.Until(time.Minute, "the relay to say that it let go", func() bool {
						return regexp.MustCompile(`let go of the slot.*` + c.says).MatchString(r.Log())
					})
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
