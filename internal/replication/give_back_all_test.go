//go:build testall

package replication

import (
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A leader stays that reached its broker once, and one whose standby reaches no broker either:
// another one would be no better.
func TestLeaderStays(t *testing.T) {
	each(t, map[string]struct{ was, other bool }{
		"its broker was up":            {was: true, other: true},
		"the standby has none, either": {},
	}, func(t *testing.T, b *bench, c struct{ was, other bool }) {
		broker := b.withBroker(false)
		broker.was.Store(c.was)
		var looks atomic.Int64
		b.cfg.Hooks.Monitor = func(atWork bool) {
			if !atWork {
				looks.Add(1)
			}
		}
		first := b.streaming()
		other := b.another()
		other.withBroker(c.other)
		other.cfg.Hooks.Monitor = nil
		second := other.run()
		second.waitPhase(survey.Standby)
		seen := looks.Load()
		await.Until(t, "the leader to look again after the standby came", func() bool { return looks.Load() >= seen+2 })
		if phase := first.s.Snapshot().Phase; phase != survey.Streaming {
			t.Errorf("the leader is %s", phase)
		}
	})
}
