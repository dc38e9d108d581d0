//go:build testall

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A process that does not run is not fed for, and goes on when it does; what ended it is the last
// that systemd shows.
func TestSystemdSeesAFrozenRelay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay, m := r.startNotify(100 * time.Millisecond)
	m.until("STATUS=idle")
	must(t, relay.Freeze())
	await.Until(t, "the end of what it has said", func() bool { return m.next(time.Second) == "" })
	must(t, relay.Thaw())
	m.until("WATCHDOG=1")
	r.exec(`DROP PUBLICATION ` + r.slot)
	if last := m.until("STATUS=stopped: "); !strings.Contains(last, r.slot) {
		t.Errorf("the last word is %q", last)
	}
	r.ends(relay, 3, "publication")
}
