package fault

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A slot that was dropped and created again by another hand starts behind rows that nobody has
// sent. The relay never goes on from there by itself: it ends with 3, names the slot, and prints
// what to run.
func TestSlotRecreated(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		r := s.Start()
		s.Deliver(30)
		s.Must(r.Kill())
		s.Free()
		s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
		s.SQL(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, s.Slot)
		s.Write(30)
		s.Exits(s.Launch(), 3, s.Slot, "dropped and created again", "may be missing", "cdc-relay accept ")
	})
}

// Without a new one it is lost, in every state of the relay.
func TestSlotDropped(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		r := s.Start()
		s.Deliver(30)
		s.Postgres.Cut()
		s.Free()
		s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
		s.Must(s.Postgres.Restore())
		s.Exits(r, 3, s.Slot)
		r = s.Launch()
		s.Exits(r, 3, s.Slot, "no longer exists", "cdc-relay recover")

		// What the message prints is the way on: a new slot, from which everything is sent.
		s.Accept(r.Log())
		s.Start()
		s.Write(30)
		s.Check(0)
	})
}

// stoppedCleanly stops a relay, which must end with 0, and returns how many events may come again:
// none, unless it says that PostgreSQL did not take its last report.
func stoppedCleanly(s *stand.Stand, r *runner.Relay) int {
	s.T.Helper()
	stopped(s, r, 0)
	if strings.Contains(r.Log(), "sent again") {
		return s.Unreported()
	}
	return 0
}

func stopped(s *stand.Stand, r *runner.Relay, code int) {
	s.T.Helper()
	if got := r.Stop(s.T); got != code {
		s.T.Errorf("relay stopped with %d, want %d", got, code)
	}
}
