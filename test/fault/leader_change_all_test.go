//go:build testall

package fault

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The way between the leader and PostgreSQL goes silent: nothing ends. The standby leads when the
// server gives the leader up, by the wal_sender_timeout that the leader's session has asked for.
// The former leader stands by once it is back.
func TestLeaderCutOffSilently(t *testing.T) {
	cutOff := says{503, 503, "none", []string{"waiting for postgres"}, "0"}
	stand.KindKafka.On(t, func(s *stand.Stand) {
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
		way.Hold(netproxy.Up)
		way.Hold(netproxy.Down)
		leads.await(s, "the standby, its leader cut off", second)
		cutOff.await(s, "the leader that is cut off", first)
		s.More(100)
		way.Reset() // what was kept back is gone
		way.Release(netproxy.Up)
		way.Release(netproxy.Down)
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

// Two standbys, as while a deployment is rolled out: one of them leads, and the other one stands by
// behind it, each time. That it was too late is no trouble of PostgreSQL's, and none is told.
func TestLeaderOfThreeKilled(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		leader := s.Start()
		s.Leads(leader)
		beside := []*runner.Relay{s.Start(), s.Start()}
		stop := s.Load(200)
		for range 3 {
			s.More(50)
			s.Must(leader.Kill())
			s.Until("one of two standbys to lead", func() bool {
				at := slices.IndexFunc(beside, func(r *runner.Relay) bool {
					code, _, err := r.Get(s.Context(), "/readyz?role=leader")
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
