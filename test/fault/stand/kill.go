// Killing a relay at three moments: before an event is sent, before it is confirmed, before it is
// reported.

package stand

import (
	"encoding/json"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// The three states in which a SIGKILL finds an event, each held by a proxy: nothing about them is a
// matter of luck. They are entered by a relay that has delivered before, with write bringing (or
// having brought under way) new rows.

// held is how many bytes count as "the thing is on its way": more than any heartbeat, less than one
// event.
const held = 200

// report is the size of one standby status update with its frame.
const report = 1 + 4 + 34

// KillUnsent kills the relay when events are read, and none of them has reached the broker. It has
// had the time to report: one that took them for delivered would have.
func (s *Stand) KillUnsent(r *runner.Relay, write func()) {
	s.T.Helper()
	s.Broker.Hold(netproxy.Up)
	write()
	s.Must(s.Broker.WaitHeld(s.Context(), netproxy.Up, held))
	s.AwaitReports(2 * time.Second)
	s.Must(r.Kill())
	s.cutBroker() // what was held is gone with the connection
}

// KillUnconfirmed kills r, the stand's first relay, when events are at the broker, and their
// confirms have not reached it. It has had the time to report: a relay that took them for confirmed
// would have.
func (s *Stand) KillUnconfirmed(r *runner.Relay, write func()) {
	s.T.Helper()
	s.Broker.Hold(netproxy.Down)
	write()
	// Not: until more have arrived. When all that may be on the wire was there already, nothing is
	// sent any more.
	s.Until("an event to be at the broker, and not confirmed", func() bool {
		arrived, _ := s.Consumer.Count()
		return s.Broker.HeldBytes(netproxy.Down) > 0 && arrived > s.published(r)
	})
	s.AwaitReports(2 * time.Second)
	s.Must(r.Kill())
	s.Broker.Release(netproxy.Down)
}

// published is how many events the relay knows to be confirmed.
func (s *Stand) published(r *runner.Relay) int {
	s.T.Helper()
	_, body, err := r.Get(s.Context(), "/api/v1/status")
	s.Must(err)
	var status struct {
		Totals struct{ Published int }
	}
	s.Must(json.Unmarshal([]byte(body), &status))
	return status.Totals.Published
}

// KillUnreported kills the relay when confirms have reached it, and no report of them has reached
// the server.
func (s *Stand) KillUnreported(r *runner.Relay, write func()) {
	s.T.Helper()
	s.Postgres.Hold(netproxy.Up)
	before, _ := s.Consumer.Count()
	write()
	s.Must(s.Consumer.WaitCount(s.Context(), before+5))
	s.Broker.Hold(netproxy.Up) // later events are read, and neither sent nor confirmed
	write()
	s.Must(s.Broker.WaitHeld(s.Context(), netproxy.Up, held))
	s.Must(s.Postgres.WaitHeld(s.Context(), netproxy.Up, report))
	s.Must(r.Kill())
	s.cutPostgres() // a report that was written and did not arrive
	s.cutBroker()
}

func (s *Stand) cutBroker() {
	s.T.Helper()
	s.Broker.Cut()
	s.Broker.Release(netproxy.Up)
	s.Must(s.Broker.Restore())
}

func (s *Stand) cutPostgres() {
	s.T.Helper()
	s.Postgres.Cut()
	s.Postgres.Release(netproxy.Up)
	s.Must(s.Postgres.Restore())
}
