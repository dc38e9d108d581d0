//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The server ends the stream, again and again: the process remembers what was confirmed, so nothing is sent twice.
func TestWalsenderTerminatedUnderLoad(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		stop := s.Load(200)
		for range 3 {
			s.More(30)
			s.SQL(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, s.Slot)
			s.More(30)
			s.Leads(r)
		}
		stop()
		s.Check(0)
	})
}
