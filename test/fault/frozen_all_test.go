//go:build testall

package fault

import (
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A leader is cut off and does not know; its standby takes over and reports further. Then the old
// one is asked to stop, and its way to the server is fixed while it does: it must not take the
// flush limit back below what the new one has reported, or the slot looks moved to whoever comes
// next.
func TestLeaderCutOffSilentlyThenStopped(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		s.Timeout, s.Delivery = "60s", "shutdown_grace: 10s"
		s.WatchFlush()
		way := s.Proxy(s.PostgresAddr)
		old := s.LaunchVia(way)
		s.Leads(old)
		standby := s.Start()
		stop := s.Load(200)
		s.More(50)
		flush := s.Flush()
		way.Stall()
		s.SQL(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, s.Slot)
		s.Leads(standby)
		s.More(50)
		stop()
		s.Arrived()
		s.Reported()
		s.Must(old.Signal(syscall.SIGTERM))
		s.Must(old.WaitLog(s.Context(), `"stopping: received signal"`))
		s.Must(way.Restore())
		code, err := old.Exit(s.Context())
		s.Must(err)
		s.T.Logf("the old leader ended with %d", code)
		bound := s.Since(flush) // each by either of them
		s.Write(50)
		s.Must(standby.Kill())
		bound += s.Unreported()
		s.Leads(s.Start())
		s.Write(50)
		s.Check(bound)
	})
}
