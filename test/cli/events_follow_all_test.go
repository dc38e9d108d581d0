//go:build testall

// A list of events that is followed.

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// While no relay runs and no transaction ends, --follow keeps its connection: it does not read the
// tables again, for which each time one is made that is closed afterwards.
func TestFollowKeepsItsConnection(t *testing.T) {
	r := on(t, servers.QuietPostgres(t).Database(t))
	r.exec(load.OutboxTable)
	r.ok("init")
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	must(t, os.WriteFile(file, []byte(r.yaml()), 0o600))
	cmd := exec.CommandContext(await.Context(t), r.binary, "events", "list", "--key", "k", "--follow", "--every", "100ms", "-c", file)
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	looks := map[string]map[string]bool{} // by session: when it has asked
	eventually(t, func() string {
		seen := ask[string](r, `SELECT coalesce(string_agg(pid || ' ' || (extract(epoch FROM query_start) * 1000)::bigint, ','), '') FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend'`)
		for session := range strings.SplitSeq(seen, ",") {
			pid, at, _ := strings.Cut(session, " ")
			if looks[pid] == nil {
				looks[pid] = map[string]bool{}
			}
			if looks[pid][at] = true; pid != "" && len(looks[pid]) >= 10 {
				return ""
			}
		}
		return fmt.Sprintf("no session has asked ten times: %v", looks)
	})
}
