package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// SIGKILL in each of the three states that a proxy can hold. Twenty seeds of it under running load
// are in test/long.

func TestKilledBeforeTheEventIsSent(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		if s.RabbitMQ != nil {
			// its channel is open before the hold: a lane that waits for one could not go wrong
			s.Delivery = "lanes: 1"
		}
		r := s.StartWatched()
		s.Deliver(30)
		s.KillUnsent(r, func() { s.Write(30) })
		bound := s.Unreported()
		s.Start()
		s.Check(bound)
	})
}

func TestKilledBeforeTheConfirmArrives(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		r := s.StartWatched()
		s.Deliver(30)
		s.KillUnconfirmed(r, func() { s.Write(30) })
		bound := s.Unreported()
		s.Start()
		if bound == 0 {
			s.T.Error("nothing had arrived that was not reported: the state is not the one that is tested")
		}
		s.Check(s.Repeats(bound))
	})
}

func TestKilledBeforeTheReportIsSent(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		// or the server would end the session while its reports are held
		s.Timeout = "60s"
		r := s.StartWatched()
		s.Deliver(30)
		s.KillUnreported(r, func() { s.Write(30) })
		bound := s.Unreported()
		s.Start()
		if v := s.Check(bound); v.Duplicates == 0 {
			s.T.Error("nothing was sent twice: the state was not the one that is tested")
		}
	})
}
