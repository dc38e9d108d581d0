//go:build testall

package fault

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// nowhere is an address at which nobody listens.
const nowhere = "127.0.0.1:1"

// wronglyStarted starts a relay whose broker is nowhere.
func wronglyStarted(s *stand.Stand, broker string) *runner.Relay {
	s.T.Helper()
	config := s.Config()
	wrong := strings.ReplaceAll(config, broker, nowhere)
	if wrong == config {
		s.T.Fatalf("%s is not in the configuration", broker)
	}
	return runner.StartRelayIn(s.T, s.Env, s.Binary, wrong)
}

// neverReached waits until the relay stands by and is not ready, for want of a broker.
func neverReached(s *stand.Stand, r *runner.Relay) {
	s.T.Helper()
	s.Unready(r, "broker not reached since the start: ")
	if _, body := s.Readyz(r); !strings.Contains(body, nowhere) && strings.Contains(body, "broker not reached") {
		s.T.Errorf("the broker's error is not named: %s", body)
	}
}

// A rollout brings a wrong address of the broker. Its pod is never ready, so Kubernetes replaces no
// healthy one by it. When the healthy one goes all the same, the wrong one leads, not ready, until
// it is stopped, and a right one leads. Nothing is lost, repeated, or out of order.
func TestRolloutWithAWrongBroker(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		first := s.Start()
		stop := s.Load(50)
		s.More(50)
		wrong := wronglyStarted(s, s.Broker.Addr())
		neverReached(s, wrong)
		if code := first.Stop(t); code != 0 {
			t.Errorf("the first relay stops with %d", code)
		}
		s.Unready(wrong, "broker down: ")
		if _, body := s.Readyz(wrong); !strings.Contains(body, `"role":"leader"`) {
			t.Errorf("the wrong relay alone does not lead: %s", body)
		}
		right := s.Start()
		if code, body, err := right.Get(s.Context(), "/readyz?role=leader"); err != nil || code != 503 {
			t.Errorf("the right relay leads at once: %d %s, %v", code, body, err)
		}
		wrong.Stop(t)
		s.Leads(right)
		s.More(50)
		stop()
		s.Check(0)
	})
}
