package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// fault is one way in which a connection goes bad, and how it is seen that the relay has met it.
type fault struct {
	name  string
	begin func(*stand.Stand, *netproxy.Proxy)
	met   func(*stand.Stand, *runner.Relay, string)

	delivery string // section delivery
}

var cut = fault{"Cut", func(s *stand.Stand, p *netproxy.Proxy) { lose(s, p, netproxy.Up, 200, p.Cut) }, (*stand.Stand).Unready, ""}

// faultOn is a fault, and the kind of broker that the relay then has.
type faultOn struct {
	fault
	kind stand.Kind
}

// More of them are in network_all_test.go.
var (
	toTheBroker = []faultOn{{cut, stand.KindKafka}}
	toPostgres  = []faultOn{{cut, stand.KindRabbitMQ}}
)

// lose ends the connections when n bytes of the direction are under way, which never arrive: of
// what the relay has sent, or of the answers to it.
func lose(s *stand.Stand, p *netproxy.Proxy, d netproxy.Direction, n int64, end func()) {
	s.T.Helper()
	p.Hold(d)
	s.Must(p.WaitHeld(s.Context(), d, n))
	end()
	p.Release(d)
}

// What arrives twice was on the wire when the connection went: at most one event of each key.
func TestWayToTheBroker(t *testing.T) {
	t.Parallel()
	for _, f := range toTheBroker {
		t.Run(f.name, func(t *testing.T) {
			f.kind.On(t, func(s *stand.Stand) {
				s.Delivery = f.delivery
				r := f.meet(s, s.Broker, "broker down")
				s.Check(s.Repeats(s.Keys))
				if s.Metric(r, "outbox_sink_reconnects_total") == 0 {
					s.T.Error("no connection was counted that was made again")
				}
			})
		})
	}
}

// The process remembers what was confirmed, so nothing is sent twice.
func TestWayToPostgres(t *testing.T) {
	t.Parallel()
	for _, f := range toPostgres {
		t.Run(f.name, func(t *testing.T) {
			f.kind.On(t, func(s *stand.Stand) {
				f.meet(s, s.Postgres, "waiting for postgres")
				s.Check(0)
			})
		})
	}
}

// meet has a relay under load meet the fault on a way, and get over it.
func (f fault) meet(s *stand.Stand, way *netproxy.Proxy, why string) *runner.Relay {
	s.T.Helper()
	r := s.StartWatched()
	stop := s.Load(200)
	s.More(50)
	f.begin(s, way)
	f.met(s, r, why)
	s.Must(way.Restore())
	way.Trickle(0)
	s.Leads(s.Ready(r))
	s.More(50)
	stop()
	return r
}

// lostOver are those of TestOrderOverLostConnections, by the kind of broker. More are in
// network_all_test.go.
var lostOver = map[string]stand.Kind{"key": stand.KindRabbitMQ}

// Few keys, many events of each, and connections that are lost with events or confirms under way,
// again and again: every ordering keeps its promise. What arrives twice was in the in-flight budget
// when a connection went.
func TestOrderOverLostConnections(t *testing.T) {
	t.Parallel()
	for ordering, kind := range lostOver {
		t.Run(ordering, func(t *testing.T) {
			kind.On(t, func(s *stand.Stand) {
				s.Ordering, s.Delivery, s.Keys = ordering, "max_in_flight: 100", 3
				r := s.StartWatched()
				stop := s.Load(400)
				const losses = 3
				// each of a connection that works: a login under way is too few bytes
				for range losses {
					s.Fresh(50)
					lose(s, s.Broker, netproxy.Down, 1, s.Broker.Reset)
					s.Fresh(50)
					lose(s, s.Broker, netproxy.Up, 200, s.Broker.Reset)
				}
				s.Leads(s.Ready(r))
				s.More(50)
				stop()
				s.Check(s.Repeats(losses * 2 * 100))
			})
		})
	}
}
