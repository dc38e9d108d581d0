package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A leader is lost, and the standby beside it leads: nothing is lost, order is kept, and at each
// moment both say to a load balancer, an operator and a dashboard what they are.

// says is what a relay answers.
type says struct {
	ready  int // /readyz
	leads  int // /readyz?role=leader
	role   string
	states []string // of status
	leader string   // cdc_relay_leader
}

var (
	// a machine may be slow
	leads   = says{200, 200, "leader", []string{"streaming", "idle", "catching up"}, "1"}
	standby = says{200, 503, "standby", []string{"standby"}, "0"}
)

// await waits until the relay says all of it.
func (want says) await(s *stand.Stand, what string, r *runner.Relay) {
	s.T.Helper()
	var last string
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Logf("%s, at last: %s", what, last)
		}
	})
	s.Until(fmt.Sprintf("%s to say %+v", what, want), func() bool {
		ready, body, err := r.Get(s.Context(), "/readyz")
		leads, _, err2 := r.Get(s.Context(), "/readyz?role=leader")
		_, text, err3 := r.Get(s.Context(), "/api/v1/status")
		_, metrics, err4 := r.Get(s.Context(), "/metrics")
		if err := errors.Join(err, err2, err3, err4); err != nil { // it is slow
			last = err.Error()
			return false
		}
		var readyz, st apiStatus
		s.Must(json.Unmarshal([]byte(body), &readyz))
		s.Must(json.Unmarshal([]byte(text), &st))
		counted := strings.Contains(metrics, "\ncdc_relay_leader "+want.leader+"\n")
		last = fmt.Sprintf("/readyz %d as %s, for the leader %d; status %s as %s: %s; cdc_relay_leader %s: %t", ready, readyz.Role, leads, st.State, st.Role, st.Why, want.leader, counted)
		return ready == want.ready && leads == want.leads && readyz.Role == want.role && st.Role == want.role &&
			slices.Contains(want.states, st.State) && counted &&
			// who holds the slot
			(want.role != "standby" || strings.Contains(st.Why, "cdc-relay/"+s.Slot))
	})
}

// SIGKILL, and a new process in the place of the dead one. A clean stop hands the slot back, and
// repeats nothing.
func TestLeaderKilled(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		first := s.Start()
		leads.await(s, "the first relay", first)
		second := s.Start()
		standby.await(s, "the second relay", second)
		leads.await(s, "the first relay beside a standby", first)
		stop := s.Load(200)
		s.More(50)
		flush := s.Flush()
		s.Must(first.Kill())
		leads.await(s, "the standby, its leader dead", second)
		bound := s.Since(flush)
		s.More(50)
		back := s.Start()
		standby.await(s, "a relay in the place of the dead one", back)
		leads.await(s, "the new leader beside it", second)
		s.More(50)
		if code := second.Stop(s.T); code != 0 {
			s.T.Errorf("the new leader stops with %d", code)
		}
		leads.await(s, "the relay in the place of the dead one, alone", back)
		s.More(50)
		stop()
		s.Check(bound)
	})
}
