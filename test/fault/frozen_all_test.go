//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A process that is stopped for so long that the server gives up its session goes on where it was:
// it remembers.
func TestFrozenWithoutAStandby(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		r := s.StartWatched()
		stop := s.Load(200)
		s.More(100)
		s.Must(r.Freeze())
		s.Free()
		s.Must(r.Thaw())
		s.More(100)
		s.Leads(r)
		stop()
		// what was on the wire when it was stopped: its answers may have been missed
		s.Check(s.Keys)
	})
}
