//go:build nightly

// SIGKILL at twenty moments under load.

package long

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

const seeds = 20

// states are the three that a proxy can hold a relay in; the workload runs all the time, so nothing
// needs to be written.
var states = []struct {
	name   string
	kill   func(*stand.Stand, *runner.Relay, func())
	repeat bool // the state is not the one that is tested unless something is sent twice
}{
	{"unsent", (*stand.Stand).KillUnsent, false},
	{"sent, unconfirmed", (*stand.Stand).KillUnconfirmed, true},
	{"confirmed, unreported", (*stand.Stand).KillUnreported, true},
}

// SIGKILL under running load: the seed picks the state and the moment. What may arrive twice is,
// exactly, what has arrived beyond the slot's position; on Kafka it is found there.
func TestKilledTwentyTimes(t *testing.T) {
	for _, kind := range stand.Kinds {
		t.Run(kind.Name, func(t *testing.T) { killedTwentyTimes(t, kind) })
	}
}

func killedTwentyTimes(t *testing.T, kind stand.Kind) {
	var kills, duplicates [3]atomic.Int64
	t.Run("Seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			random := rand.New(rand.NewPCG(seed, 27))
			state, moment := random.IntN(len(states)), 20+random.IntN(300)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				stand.Parallel(t)
				t.Logf("seed %d: %s, after %d events", seed, states[state].name, moment)
				s := stand.New(t, kind.Shared(t))
				r := s.StartWatched()
				stop := s.Load(300)
				s.More(moment)
				states[state].kill(s, r, func() {})
				bound := s.Unreported()
				s.Start()
				s.More(100)
				stop()
				v := s.Check(s.Repeats(bound))
				if states[state].repeat && bound == 0 {
					t.Error("nothing has arrived that is not reported: the state was not the one that is tested")
				}
				kills[state].Add(1)
				duplicates[state].Add(int64(v.Duplicates))
			})
		}
	})
	for i, state := range states {
		t.Logf("report: on %s, killed %d times in state %q: %d events came twice", kind.Name, kills[i].Load(), state.name, duplicates[i].Load())
		if kills[i].Load() < 5 {
			t.Errorf("state %q was entered %d times: choose seeds that enter each", state.name, kills[i].Load())
		}
	}
}
