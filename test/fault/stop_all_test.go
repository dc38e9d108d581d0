//go:build testall

package fault

import (
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The second signal skips the drain, however long the grace period is.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.Delivery = "shutdown_grace: 1h"
		r := s.Start()
		s.Write(30)
		s.Arrived()
		before := s.Committed()
		s.Broker.Stall()
		s.Write(30)
		inFlight(s, r, 1)
		s.Must(r.Signal(syscall.SIGTERM))
		s.Until("the relay to stop", func() bool { return status(s, r).State == "stopping" })
		s.Must(r.Signal(syscall.SIGTERM))
		s.Exits(r, 5)
		s.Must(s.Broker.Restore())
		wire := s.Keys // at most, when the way was stalled: one event of each key
		if s.Kafka != nil {
			wire = s.Committed() - before // a request may carry all of them
		}
		bound := s.Unreported() + wire
		s.Start()
		s.Check(bound)
	})
}
