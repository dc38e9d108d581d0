//go:build testall

package cli

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// TestSwitchCutOff: a relay is killed when it has placed the deferred events for the other broker,
// and not yet the dead letters. The next one, of either broker, finds them for its own.
func TestSwitchCutOff(t *testing.T) {
	for name, back := range map[string]bool{"and goes on": false, "and is rolled back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSwitching(t)
			ch := s.channel(t)
			must(t, ch.ExchangeDeclare("unbound", "topic", true, false, false, false, nil))
			s.rabbit("unbound")
			relay := s.start()
			s.write(3, "a", "b")
			s.deferred(6)
			dead := s.died("b")
			s.stopped(relay)
			s.write(1, "a", "b")

			ctx := await.Context(t)
			held, err := pgx.Connect(ctx, s.db)
			must(t, err)
			defer held.Close(ctx)
			_, err = held.Exec(ctx, `BEGIN; SELECT FROM cdc_relay.dead_letter WHERE n = `+dead+` FOR UPDATE`)
			must(t, err)
			s.toKafka(s.topic)
			relay = runner.Start(t, s.binary, s.yaml())
			becomes(s.rig, true, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%UPDATE cdc_relay.dead_letter%')
					AND NOT EXISTS (SELECT FROM cdc_relay.retry WHERE slot = $1 AND route_name <> $2::text::bytea)`, s.slot, s.topic)
			must(t, relay.Kill())
			s.released()
			if back {
				s.rabbit("unbound")
				must(t, ch.QueueBind("orders", "#", "unbound", false, nil))
			}
			relay = runner.Start(t, s.binary, s.yaml())
			must(t, held.Close(ctx))
			must(t, relay.WaitReady(ctx))
			arrived := map[bool]func(int) map[string][]int{false: s.arrived, true: s.consumed}[back]
			s.same("the broker", arrived(7), map[string][]int{"a": {1, 2, 3, 4}, "b": {1, 2, 4}})
			s.ok("dead-letters", "replay", dead, "--reason", "a test", "--wait", "60s")
			s.same("the broker", arrived(8), map[string][]int{"a": {1, 2, 3, 4}, "b": {1, 2, 4, 3}})
			s.deferred(0)
			s.stopped(relay)
			if back {
				s.same("the topic", s.arrived(0), map[string][]int{})
			}
		})
	}
}
