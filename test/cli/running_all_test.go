//go:build testall

package cli

import (
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// A disk that is full is said by status, readiness and the log while writing is tried again.
func TestFullStdout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "delivery: {shutdown_grace: 100ms}"
	relay := r.startInto("/dev/full")
	r.insert(1)
	state(t, relay, "broker down", "no space left on device")
	says(t, relay, "/readyz", 503, "broker down: ", "no space left on device")
	must(t, relay.WaitLog(await.Context(t), `"msg":"publishing failed: it is tried again, nothing is dropped"`))
	must(t, relay.Signal(syscall.SIGTERM))
	r.ends(relay, 5, "events not settled")
}

// TestTakenAwayWhileItRuns, of the table.
func TestTableTakenAwayWhileItRuns(t *testing.T) {
	t.Parallel()
	takenAway(t, []taken{
		{"table of the publication", `ALTER PUBLICATION SLOT DROP TABLE outbox`, 3, []string{"SLOT", "does not contain table public.outbox", "ALTER PUBLICATION", "ADD TABLE", "may be missing"}},
		{"table re-created", `DROP TABLE outbox; ` + load.OutboxTable, 3, []string{"table public.outbox", "created again", "ADD TABLE", "may be missing"}},
	})
}
