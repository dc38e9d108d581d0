package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
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
	stand.KindKafka.On(t, func(s *stand.Stand) {
		r := cutUnderLoad(s, s.Broker, "broker down")
		s.Check(s.Repeats(s.Keys))
		if s.Metric(r, "cdc_relay_sink_reconnects_total") == 0 {
			s.T.Error("no connection was counted that was made again")
		}
	})
}

// The process remembers what was confirmed, so nothing is sent twice.
func TestWayToPostgres(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		cutUnderLoad(s, s.Postgres, "waiting for postgres")
		s.Check(0)
	})
}

// cutUnderLoad has a relay under load lose a way, say why it waits, and get it back. (A way that is
// silent is for the tests of internal/replication and of the sinks.)
func cutUnderLoad(s *stand.Stand, way *netproxy.Proxy, why string) *runner.Relay {
	s.T.Helper()
	r := s.StartWatched()
	stop := s.Load(200)
	s.More(50)
	lose(s, way, netproxy.Up, 200, way.Cut)
	s.Unready(r, why)
	s.Must(way.Restore())
	s.Leads(s.Ready(r))
	s.More(50)
	stop()
	return r
}

// Few keys, many events of each, and connections that are lost with events or confirms under way,
// again and again: the order is kept. What arrives twice was in the in-flight budget when a
// connection went.
func TestOrderOverLostConnections(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.Delivery, s.Keys = "max_in_flight: 100", 3
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
}
