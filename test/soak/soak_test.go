//go:build nightly

// Package soak breaks things at random under load for as long as it is told to, and asks the
// checker; then it breaks nothing for as long, and asks Prometheus. `make soak` runs it for an hour
// of each; without -for it is a short look that the soak itself works.
package soak

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

var (
	duration = flag.Duration("for", 30*time.Second, "how long to break things, half of it on each kind of broker")
	seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of faults and their moments")
)

func TestMain(m *testing.M) { servers.Main(m) }

// soak is two relays of one slot, one of which leads, and what may be done to them.
type soak struct {
	*stand.Stand
	relays [2]*runner.Relay
	random *rand.Rand
	later  bool // the destination "later" is there
}

// faults are what a bad day brings; each fixes itself before it returns.
var faults = []struct {
	name string
	do   func(*soak)
}{
	{"kill a relay", func(s *soak) {
		i := s.random.IntN(2)
		s.Must(s.relays[i].Kill())
		s.relays[i] = s.Launch()
	}},
	{"stop a relay", func(s *soak) {
		i := s.random.IntN(2)
		// a signal before that ends it as it ends any process
		s.Must(s.relays[i].WaitLog(s.Context(), `"msg":"starting"`))
		code := s.relays[i].Stop(s.T)
		// it was about to end by itself, from an earlier fault
		fenced := code == 1 && strings.Contains(s.relays[i].Log(), "fenced")
		// 5: it had events, and no session or no broker
		if code != 0 && code != 5 && !fenced {
			s.T.Errorf("a stop exits %d", code)
		}
		s.relays[i] = s.Launch()
	}},
	{"freeze a relay past wal_sender_timeout", func(s *soak) {
		r := s.relays[s.random.IntN(2)]
		s.Must(r.Freeze())
		s.pass(6 * time.Second)
		s.Must(r.Thaw())
	}},
	{"cut the way to the broker", func(s *soak) {
		s.Broker.Cut()
		s.pass(time.Second)
		s.Must(s.Broker.Restore())
	}},
	{"hold the broker's answers, then reset", func(s *soak) {
		s.Broker.Hold(netproxy.Down)
		s.pass(time.Second)
		s.Broker.Reset()
		s.Broker.Release(netproxy.Down)
	}},
	{"cut the way to PostgreSQL", func(s *soak) {
		s.Postgres.Cut()
		s.pass(time.Second)
		s.Must(s.Postgres.Restore())
	}},
	{"hold the reports, then reset", func(s *soak) {
		s.Postgres.Hold(netproxy.Up)
		s.pass(2 * time.Second)
		s.Postgres.Reset()
		s.Postgres.Release(netproxy.Up)
	}},
	{"end every walsender", func(s *soak) {
		s.SQL(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, s.Slot)
	}},
	{"end every session of the relays", func(s *soak) {
		s.SQL(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend'`)
	}},
	{"make a destination, or take it away", func(s *soak) {
		switch {
		case !s.later:
			s.MakeLater()
			s.later = true
		case s.RabbitMQ != nil: // a topic of Kafka would go with what is in it
			s.Unbind(s.Later(), "#")
			s.later = false
		}
	}},
	{"take the queue away from its exchange", func(s *soak) {
		if s.RabbitMQ != nil {
			s.Unbind(s.Usual(), "#")
			s.pass(2 * time.Second)
			s.Bind(s.Usual(), "#")
		}
	}},
	{"replay the dead letters", func(s *soak) { s.replay("0s") }},
}

// replay asks for all dead letters; those of poison that is still poison die again.
func (s *soak) replay(wait string) {
	args := []string{"dead-letters", "replay", "--all", "--wait", wait}
	if s.RabbitMQ != nil {
		args = append(args, s.Antidote()...)
	}
	s.Command(args...) // it fails when the relays are away, and when a dead letter is refused
}

// pass lets the fault last while the load goes on: until so much time has passed or the load stands
// still.
func (s *soak) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func TestSoak(t *testing.T) {
	for _, kind := range stand.Kinds {
		t.Run(kind.Name, func(t *testing.T) { soakFor(t, kind, *duration/time.Duration(len(stand.Kinds))) })
	}
}

func soakFor(t *testing.T, kind stand.Kind, d time.Duration) {
	s := &soak{Stand: stand.Routed(t, kind), random: rand.New(rand.NewPCG(*seed, 1))}
	t.Logf("seed %d, for %s", *seed, d)
	s.Retry = "backoff: 100ms, max_backoff: 2s"
	s.Kinds = []load.Kind{s.ToLater(0.2, 0), s.Poison(0.01, 0)}
	s.WatchFlush()
	s.relays = [2]*runner.Relay{s.Start(), s.Launch()}
	stop := s.Load(200)
	count := map[string]int{}
	for end := time.Now().Add(d); time.Now().Before(end); {
		fault := faults[s.random.IntN(len(faults))]
		fault.do(s)
		count[fault.name]++
		s.relaunchEnded()
		s.Until("events to flow again after: "+fault.name, s.flows())
	}
	stop()
	if !s.later {
		s.MakeLater()
	}
	s.Antidote()
	s.Until("all dead letters to be replayed, and nothing to be deferred", func() bool {
		s.replay("5s")
		return s.RowsIn(checker.Open) == 0 && s.RowsIn(checker.Deferred) == 0
	})
	s.Check(-1)
	for name, n := range count {
		t.Logf("%3d × %s", n, name)
	}
}

// relaunchEnded starts a relay again that has ended by itself: one that was fenced while it was
// frozen does (exit 1).
func (s *soak) relaunchEnded() {
	for i, r := range s.relays {
		if r.Running() {
			continue
		}
		if code, err := r.Exit(s.Context()); err != nil || code != 1 {
			s.T.Fatalf("a relay ended with code %d (%v):\n%s", code, err, r.Log())
		}
		s.relays[i] = s.Launch()
	}
}

// flows tells whether something has arrived since it was made.
func (s *soak) flows() func() bool {
	before, _ := s.Consumer.Count()
	return func() bool {
		s.relaunchEnded()
		now, _ := s.Consumer.Count()
		return now > before+20
	}
}
