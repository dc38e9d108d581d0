package fault

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A clean stop repeats nothing and misses nothing, under load, again and again.
func TestCleanStopUnderLoad(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		r := s.StartWatched()
		stop := s.Load(200)
		var again [3]int
		for i := range again {
			s.More(50)
			again[i] = stoppedCleanly(s, r)
			r = s.Start()
		}
		s.More(50)
		stop()
		s.Check(again[0] + again[1] + again[2])
		if slices.Min(again[:]) > 0 {
			s.T.Error("no stop was clean")
		}
	})
}

// With a broker that is gone the drain is cut by the grace period: 5, and what was not confirmed
// comes after the restart.
func TestStopWithADeadBroker(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		s.Delivery = "shutdown_grace: 2s"
		r := s.StartWatched()
		s.Deliver(30)
		s.Broker.Cut()
		s.Write(30)
		s.Unready(r, "broker down")
		inFlight(s, r, 1)
		stopped(s, r, 5)
		bound := s.Unreported()
		s.Must(s.Broker.Restore())
		s.Start()
		s.Check(bound)
	})
}
