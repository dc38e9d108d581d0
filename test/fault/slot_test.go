package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// recreated is a slot that was dropped and created again by another hand.
type recreated struct {
	name string
	kind stand.Kind
	away func(*stand.Stand, *runner.Relay) // the relay leaves the slot
	back func(*stand.Stand, *runner.Relay) *runner.Relay
}

// More are in slot_all_test.go.
var slotRecreated = []recreated{{
	"AfterAKill", stand.KindKafka,
	func(s *stand.Stand, r *runner.Relay) { s.Must(r.Kill()) },
	func(s *stand.Stand, _ *runner.Relay) *runner.Relay { return s.Launch() },
}}

// A slot that was dropped and created again by another hand starts behind rows that nobody has
// sent. The relay never goes on from there by itself: it ends with 3, names the slot, and prints
// what to run.
func TestSlotRecreated(t *testing.T) {
	t.Parallel()
	for _, c := range slotRecreated {
		t.Run(c.name, func(t *testing.T) {
			c.kind.On(t, func(s *stand.Stand) {
				r := s.Start()
				s.Write(30)
				s.Arrived()
				c.away(s, r)
				s.Free()
				s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
				s.SQL(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, s.Slot)
				s.Write(30)
				s.Exits(c.back(s, r), 3, s.Slot, "dropped and created again", "UPDATE cdc_relay.slots SET state = 'adopt'")
			})
		})
	}
}

// Without a new one it is lost, in every state of the relay.
func TestSlotDropped(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		r := s.Start()
		s.Write(30)
		s.Arrived()
		s.Postgres.Cut()
		s.Free()
		s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
		s.Must(s.Postgres.Restore())
		s.Exits(r, 3, s.Slot)
		s.Exits(s.Launch(), 3, s.Slot, "no longer exists", "UPDATE cdc_relay.slots SET state = 'adopt'")

		// What the message prints is the way on: a new slot, from which everything is sent.
		s.SQL(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, s.Slot)
		s.Start()
		s.Write(30)
		s.Check(0)
	})
}

func stopped(s *stand.Stand, r *runner.Relay, code int) {
	s.T.Helper()
	if got := r.Stop(s.T); got != code {
		s.T.Errorf("relay stopped with %d, want %d", got, code)
	}
}
