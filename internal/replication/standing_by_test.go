package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// The relays that stand by are those that ask for the slot now, by the names that they give. A name
// stays inside of its comment.
func TestRelaysThatStandBy(t *testing.T) {
	b := shared(t)
	first := b.settledRun("a")
	second := b.another()
	second.cfg.Advertise = "https://relay-1:8464/*/ SELECT 1/0; /*"
	pool, err := source.ConnectPool(&b.cfg)
	await.Must(t, err)
	defer pool.Close()
	var seen []string
	become := func(want ...string) {
		t.Helper()
		await.Until(t, "the relays that stand by", func() bool {
			seen, err = slot.ReadStandbyRelays(await.Context(t), pool, &b.cfg)
			await.Must(t, err)
			return seen != nil && slices.Equal(seen, want)
		}, func() any { return seen })
	}
	become()
	r := second.run()
	r.waitPhase(slot.Standby)
	become(strings.ReplaceAll(slot.RelayName(&second.cfg), "*", ""))
	first.endClean()
	r.waitPhase(slot.Streaming)
	become()
	r.endClean()
	conn, err := pool.Acquire(await.Context(t))
	await.Must(t, err)
	defer conn.Release()
	for _, sql := range []string{`SET track_activities = off`, `SET track_activities = on; SET ROLE pg_monitor`} {
		_, err = conn.Exec(await.Context(t), sql)
		await.Must(t, err)
		if seen, err = slot.ReadStandbyRelays(await.Context(t), conn, &b.cfg); err != nil || seen != nil {
			t.Errorf("after %s it says %q, %v", sql, seen, err)
		}
	}
}
