//go:build testall

package fault

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// An exchange that does not exist yet is paused, by name, and everything that goes there is
// deferred; creating it is all the fixing.
func TestMissingExchangeIsPaused(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedRabbitMQ(t))
	s.WatchFlush()
	s.Sink = "exchange: later.events"
	r := s.Start()
	s.Write(100)
	paused := pausedFor(s, r, "no_exchange")
	if !strings.Contains(paused.Destination, "later.events") || !strings.Contains(paused.Words, "NOT_FOUND") {
		t.Errorf("paused is %+v, want the exchange and the broker's words", paused)
	}
	s.AwaitRows(checker.Deferred, s.Committed())
	if n, _ := s.Consumer.Count(); n != 0 {
		t.Errorf("%d events have arrived without an exchange", n)
	}
	named(s, r, "later.events")
	s.MakeExchange("later.events")
	s.Check(0)
	fixed(s, r)
}
