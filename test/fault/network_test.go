package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// fault is one way in which a connection goes bad, and how it is seen that the relay has met it.
type fault struct {
	name  string
	begin func(*devenv.Proxy)
	met   func(*stand.Stand, *devenv.Relay, string)
}

var faults = []fault{
	{"Cut", (*devenv.Proxy).Cut, (*stand.Stand).Unready},
	{"Stalled", (*devenv.Proxy).Stall, (*stand.Stand).Unready},
	{"Reset", (*devenv.Proxy).Reset, func(s *stand.Stand, _ *devenv.Relay, _ string) { s.More(50) }},
	{"Trickling", func(p *devenv.Proxy) { p.Trickle(20_000) }, func(s *stand.Stand, _ *devenv.Relay, _ string) { s.More(50) }},
}

// What arrives twice was on the wire when the connection went: at most one event of each key.
func TestWayToTheBroker(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			stand.Parallel(t)
			s := stand.New(t)
			s.Delivery = "confirm_timeout: 2s"
			f.meet(s, s.Broker, "broker down")
			s.Check(s.Keys)
		})
	}
}

// The process remembers what was confirmed, so nothing is sent twice.
func TestWayToPostgres(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			stand.Parallel(t)
			s := stand.New(t)
			f.meet(s, s.Postgres, "waiting for postgres")
			s.Check(0)
		})
	}
}

func (f fault) meet(s *stand.Stand, way *devenv.Proxy, why string) {
	s.T.Helper()
	s.WatchFlush()
	r := s.Start()
	stop := s.Load(200)
	s.More(100)
	f.begin(way)
	f.met(s, r, why)
	s.Must(way.Mend())
	way.Trickle(0)
	s.Leads(s.Ready(r))
	s.More(100)
	stop()
}
