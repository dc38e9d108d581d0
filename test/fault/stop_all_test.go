//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

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
