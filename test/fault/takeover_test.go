package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A leader is lost, and the standby beside it leads: nothing is lost, order is kept, and at each moment both say to a load balancer,
// an operator and a dashboard what they are.

// says is what a relay answers.
type says struct {
	ready  int // /readyz
	leads  int // /readyz?role=leader
	role   string
	states []string // of status
	leader string   // outbox_leader
}

var (
	leads   = says{200, 200, "leader", []string{"streaming", "idle", "catching up"}, "1"} // a machine may be slow
	standby = says{200, 503, "standby", []string{"standby"}, "0"}
	cutOff  = says{503, 503, "none", []string{"waiting for postgres"}, "0"}
)

// await waits until the relay says all of it.
func (want says) await(s *stand.Stand, what string, r *devenv.Relay) {
	s.T.Helper()
	var last string
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Logf("%s, at last: %s", what, last)
		}
	})
	s.Until(time.Minute, fmt.Sprintf("%s to say %+v", what, want), func() bool {
		ready, body, err := r.Get(s.Within(time.Minute), "/readyz")
		leads, _, err2 := r.Get(s.Within(time.Minute), "/readyz?role=leader")
		_, text, err3 := r.Get(s.Within(time.Minute), "/api/v1/status")
		_, metrics, err4 := r.Get(s.Within(time.Minute), "/metrics")
		if err := errors.Join(err, err2, err3, err4); err != nil { // it is slow
			last = err.Error()
			return false
		}
		var readyz, st apiStatus
		s.Must(json.Unmarshal([]byte(body), &readyz))
		s.Must(json.Unmarshal([]byte(text), &st))
		counted := strings.Contains(metrics, "\noutbox_leader "+want.leader+"\n")
		last = fmt.Sprintf("/readyz %d as %s, for the leader %d; status %s as %s: %s; outbox_leader %s: %t", ready, readyz.Role, leads, st.State, st.Role, st.Why, want.leader, counted)
		return ready == want.ready && leads == want.leads && readyz.Role == want.role && st.Role == want.role &&
			slices.Contains(want.states, st.State) && counted &&
			(want.role != "standby" || strings.Contains(st.Why, "cdc-relay/"+s.Slot)) // who holds the slot
	})
}

// SIGKILL, and a new process in the place of the dead one. A clean stop hands the slot back, and repeats nothing.
func TestLeaderKilled(t *testing.T) {
	stand.OnEach(t, func(s *stand.Stand) {
		s.WatchFlush()
		first := s.Start()
		leads.await(s, "the first relay", first)
		second := s.Start()
		standby.await(s, "the second relay", second)
		leads.await(s, "the first relay beside a standby", first)
		stop := s.Load(300)
		s.More(100)
		flush := s.Flush()
		s.Must(first.Kill())
		leads.await(s, "the standby, its leader dead", second)
		bound := s.Since(flush)
		s.More(100)
		back := s.Start()
		standby.await(s, "a relay in the place of the dead one", back)
		leads.await(s, "the new leader beside it", second)
		s.More(100)
		if code := second.Stop(s.T); code != 0 {
			s.T.Errorf("the new leader stops with %d", code)
		}
		leads.await(s, "the relay in the place of the dead one, alone", back)
		s.More(100)
		stop()
		s.Check(bound)
	})
}

// The way between the leader and PostgreSQL goes silent: nothing ends. The standby leads when the server gives the leader up, by the
// wal_sender_timeout that the leader's session has asked for. The former leader stands by once it is back.
func TestLeaderCutOffSilently(t *testing.T) {
	stand.OnEach(t, func(s *stand.Stand) {
		s.Timeout = "2s"
		s.WatchFlush()
		way := s.Proxy(s.PostgresAddr)
		first := s.LaunchVia(way)
		s.Ready(first)
		second := s.Start()
		leads.await(s, "the first relay", first)
		standby.await(s, "the second relay", second)
		stop := s.Load(200)
		s.More(100)
		flush := s.Flush()
		way.Hold(devenv.Up)
		way.Hold(devenv.Down)
		leads.await(s, "the standby, its leader cut off", second)
		cutOff.await(s, "the leader that is cut off", first)
		s.More(100)
		way.Reset() // what was kept back is gone
		way.Release(devenv.Up)
		way.Release(devenv.Down)
		if s.Deposed(first) {
			first = s.Start()
		}
		standby.await(s, "the former leader", first)
		leads.await(s, "the new leader beside it", second)
		bound := s.Since(flush) // each by either of them
		s.More(100)
		stop()
		s.Check(bound)
	})
}

// Two standbys, as while a deployment is rolled out: one of them leads, and the other one stands by behind it, each time. That it was
// too late is no trouble of PostgreSQL's, and none is told.
func TestLeaderOfThreeKilled(t *testing.T) {
	stand.OnEach(t, func(s *stand.Stand) {
		s.WatchFlush()
		leader := s.Start()
		s.Leads(leader)
		beside := []*devenv.Relay{s.Start(), s.Start()}
		stop := s.Load(200)
		for range 3 {
			s.More(50)
			s.Must(leader.Kill())
			s.Until(time.Minute, "one of two standbys to lead", func() bool {
				at := slices.IndexFunc(beside, func(r *devenv.Relay) bool {
					code, _, err := r.Get(s.Within(time.Minute), "/readyz?role=leader")
					return err == nil && code == 200
				})
				if at >= 0 {
					leader = beside[at]
					beside = slices.Delete(beside, at, at+1)
				}
				return at >= 0
			})
			standby.await(s, "the other standby", beside[0])
			leads.await(s, "the new leader", leader)
			beside = append(beside, s.Start())
		}
		for _, r := range append(beside, leader) {
			if strings.Contains(r.Log(), "is active for PID") {
				s.T.Error("a standby that came too late waits for PostgreSQL")
			}
		}
		s.More(50)
		stop()
		s.Check(-1)
	})
}
