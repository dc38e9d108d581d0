package fault

import (
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A clean stop repeats nothing and misses nothing, under load, again and again.
func TestCleanStopUnderLoad(t *testing.T) {
	stand.OnEach(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		stop := s.Load(300)
		for range 3 {
			s.More(50)
			stopped(s, r, 0)
			r = s.Start()
		}
		s.More(50)
		stop()
		s.Check(0)
	})
}

// With a broker that is gone the drain is cut by the grace period: 5, and what was not confirmed comes after the restart.
func TestStopWithADeadBroker(t *testing.T) {
	stand.OnEach(t, func(s *stand.Stand) {
		s.Delivery = "shutdown_grace: 2s"
		s.WatchFlush()
		r := s.Start()
		s.Write(30)
		s.Arrived()
		s.Broker.Cut()
		s.Write(30)
		s.Unready(r, "broker down")
		inFlight(s, r, 1)
		stopped(s, r, 5)
		bound := s.Unreported()
		s.Must(s.Broker.Mend())
		s.Start()
		s.Check(bound)
	})
}

// The second signal skips the drain, however long the grace period is.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	stand.OnEach(t, func(s *stand.Stand) {
		s.Delivery = "shutdown_grace: 1h"
		r := s.Start()
		s.Write(30)
		s.Arrived()
		before := s.Committed()
		s.Broker.Stall()
		s.Write(30)
		inFlight(s, r, 1)
		s.Must(r.Signal(syscall.SIGTERM))
		s.Until(30*time.Second, "the relay to stop", func() bool { return status(s, r).State == "stopping" })
		s.Must(r.Signal(syscall.SIGTERM))
		s.Exits(r, 5)
		s.Must(s.Broker.Mend())
		wire := s.Keys // at most, when the way was stalled: one event of each key
		if s.Kafka != nil {
			wire = s.Committed() - before // a request may carry all of them
		}
		bound := s.Unreported() + wire
		s.Start()
		s.Check(bound)
	})
}
