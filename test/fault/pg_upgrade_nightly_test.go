//go:build nightly

package fault

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// pg_upgrade gives the server another system identifier. From 17 on it takes logical slots along,
// and refuses to when something waits in one: docs/running.md says what to do before, and this does
// that. Before 17 there is no slot afterwards. All was delivered, so nothing is copied.
func TestPgUpgrade(t *testing.T) {
	stand.Parallel(t)
	pg := started(t)(pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true}))
	s, b := leave(t, pg, false)
	pg = upgraded(s, pg, "17")
	b.goesOn(s, "does not exist here")

	s.Unbind(s.Later(), "#")
	b = leaveOn(s, " again", false)
	s.Free()
	if waits := emptySlot(s); waits > 0 {
		t.Fatalf("%d rows wait in the slot of a relay that was stopped in order", waits)
	}
	upgraded(s, pg, "18")
	b.goesOn(s, "belongs to system")
}

// upgraded has the stand go on with the server of the next version.
func upgraded(s *stand.Stand, pg *pgserver.Postgres, version string) *pgserver.Postgres {
	s.T.Helper()
	out, err := exec.CommandContext(s.Context(), "../../scripts/pg-upgrade.sh", version).Output()
	s.Must(err)
	next := started(s.T)(pgserver.Upgrade(s.Context(), pg, strings.TrimSpace(string(out)), pgserver.Options{NoFsync: true}))
	s.Move(next)
	return next
}

// emptySlot advances the slot when no events wait in it. The relay's last statement is behind its
// last report, and pg_upgrade counts that.
func emptySlot(s *stand.Stand) (waits int) {
	s.T.Helper()
	s.Query([]any{&waits}, `SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2, 'messages', 'true')`, s.Slot, s.Slot)
	if waits == 0 {
		s.SQL(`SELECT pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, s.Slot)
	}
	return waits
}
