package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// A rollout with another source.slot leaves the deferred events of the old one to nobody. The log,
// check, status and the metrics name them, until the command that they name has ended it.
func TestSlotThatNobodyHolds(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	good, old := b.sink, b.slot
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: nowhere, routing_key: x}"
	relay := b.start()
	b.insert(3)
	deferred(t, relay, 3)
	must(t, relay.End())
	b.released()

	b.slot, b.reads, b.sink = old+"_v2", old, good
	names := func(what, text string) {
		t.Helper()
		if !strings.Contains(text, old+": 3 deferred events, ") || !strings.Contains(text, "source.slot: "+old+" ") {
			t.Errorf("%s does not name what waits in %s: %s", what, old, text)
		}
	}
	names("status before the first start", b.command("status").Stdout)
	b.ok("init", "--no-backfill")
	relay = b.start()
	must(t, relay.WaitLog(await.Context(t), `"msg":"nobody holds a slot in which something waits","slot":"`+old+`","waits":"3 deferred events, `))
	says(t, relay, "/metrics", 200, "\noutbox_slots_unheld 1\n")
	names("status", b.ok("status", "--admin", relay.AdminSocket()))
	s := decoded[ops.Status](t, b.ok("status", "--json", "--admin", relay.AdminSocket()))
	if len(s.UnheldSlots) != 1 || s.UnheldSlots[0].Deferred != 3 || s.UnheldSlots[0].RetainedBytes == 0 {
		t.Errorf("status has %+v", s.UnheldSlots)
	}
	f := line(t, b.command("check", "--json"), "unheld slot")
	if names("check", f.Detail+" "+f.Fix); f.Level != "warn" {
		t.Errorf("check says %+v", f)
	}

	b.slot = old
	b.ok("teardown", "--yes", "--force")
	b.slot += "_v2"
	if f := b.ok("check", "--json"); strings.Contains(f, "unheld slot") {
		t.Errorf("after teardown check has %s", f)
	}
	relay.Stop(t)
}
