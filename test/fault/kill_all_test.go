//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A report that was written before its sender's death may arrive after it: the slot moves while
// nobody is there.
func TestKilledWhileTheReportIsUnderWay(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		// or the server would end the session while its reports are held
		s.Timeout = "60s"
		r := s.StartWatched()
		s.Deliver(30)
		s.Postgres.Hold(netproxy.Up)
		s.Deliver(30)
		s.Must(s.Postgres.WaitHeld(s.Context(), netproxy.Up, 39))
		s.Must(r.Kill())
		s.Postgres.Release(netproxy.Up)
		bound := s.Unreported()
		s.Start()
		s.Write(30)
		s.Check(bound)
	})
}
