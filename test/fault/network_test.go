package fault

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// fault is one way in which a connection goes bad, and how it is seen that the relay has met it.
type fault struct {
	name  string
	begin func(*stand.Stand, *devenv.Proxy)
	met   func(*stand.Stand, *devenv.Relay, string)
	ends  bool // the connection
}

var faults = []fault{
	{"Cut", func(s *stand.Stand, p *devenv.Proxy) { lose(s, p, devenv.Up, 200, p.Cut) }, (*stand.Stand).Unready, true},
	{"Reset", func(s *stand.Stand, p *devenv.Proxy) { lose(s, p, devenv.Down, 1, p.Reset) }, comesBack, true},
	{"Stalled", func(_ *stand.Stand, p *devenv.Proxy) { p.Stall() }, (*stand.Stand).Unready, true},
	{"Trickling", func(_ *stand.Stand, p *devenv.Proxy) { p.Trickle(20_000) }, goesOn, false},
}

func goesOn(s *stand.Stand, _ *devenv.Relay, _ string) {
	s.T.Helper()
	s.More(50)
}

func comesBack(s *stand.Stand, _ *devenv.Relay, _ string) {
	s.T.Helper()
	s.Fresh(50)
}

// lose ends the connections when n bytes of the direction are under way, which never arrive: of what the relay has sent,
// or of the answers to it.
func lose(s *stand.Stand, p *devenv.Proxy, d devenv.Direction, n int64, end func()) {
	s.T.Helper()
	p.Hold(d)
	s.Must(p.WaitHeld(s.Within(30*time.Second), d, n))
	end()
	p.Release(d)
}

// What arrives twice was on the wire when the connection went: at most one event of each key.
func TestWayToTheBroker(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			stand.OnEach(t, func(s *stand.Stand) {
				s.Delivery = "confirm_timeout: 2s"
				r := f.meet(s, s.Broker, "broker down")
				s.Check(s.Repeats(s.Keys))
				if f.ends && metric(s, r, "outbox_sink_reconnects_total") == 0 {
					s.T.Error("no connection was counted that was made again")
				}
			})
		})
	}
}

// The process remembers what was confirmed, so nothing is sent twice.
func TestWayToPostgres(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			stand.OnEach(t, func(s *stand.Stand) {
				f.meet(s, s.Postgres, "waiting for postgres")
				s.Check(0)
			})
		})
	}
}

// meet has a relay under load meet the fault on a way, and get over it.
func (f fault) meet(s *stand.Stand, way *devenv.Proxy, why string) *devenv.Relay {
	s.T.Helper()
	s.WatchFlush()
	r := s.Start()
	stop := s.Load(200)
	s.More(100)
	f.begin(s, way)
	f.met(s, r, why)
	s.Must(way.Mend())
	way.Trickle(0)
	s.Leads(s.Ready(r))
	s.More(100)
	stop()
	return r
}

// Few keys, many events of each, and connections that are lost with events or confirms under way, again and again: every
// ordering keeps its promise. What arrives twice was in the window when a connection went.
func TestOrderOverLostConnections(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"key", "pipelined", "commit", "none"} {
		t.Run(ordering, func(t *testing.T) {
			stand.OnEach(t, func(s *stand.Stand) {
				s.Ordering, s.Delivery, s.Keys = ordering, "window: 100", 3
				s.WatchFlush()
				r := s.Start()
				stop := s.Load(400)
				const losses = 3
				for range losses { // each of a connection that works: a login under way is too few bytes
					s.Fresh(50)
					lose(s, s.Broker, devenv.Down, 1, s.Broker.Reset)
					s.Fresh(50)
					lose(s, s.Broker, devenv.Up, 200, s.Broker.Reset)
				}
				s.Leads(s.Ready(r))
				s.More(50)
				stop()
				s.Check(s.Repeats(losses * 2 * 100))
			})
		})
	}
}
