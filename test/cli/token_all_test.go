//go:build testall

// A login by what does not stand in the configuration. Tokens of an issuer are in the nightly tier,
// and TestTokens of internal/sink/kafka.

package cli

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// The password is what a command prints, at each connect. One that prints no password is a reason
// to wait, and one that does not exist is exit 2.
func TestPasswordOfACommand(t *testing.T) {
	t.Parallel()
	hba, err := os.CreateTemp("", "pg_hba") //nolint:usetesting // t.TempDir is root's alone, and the server runs as another user
	must(t, err)
	t.Cleanup(func() { os.Remove(hba.Name()) })
	_, err = hba.WriteString("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n") //nolint:dupword // database and user
	must(t, err)
	must(t, hba.Chmod(0o644))
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"hba_file": hba.Name()}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })

	owner := on(t, pg.Database(t))
	owner.exec("CREATE ROLE clouded SUPERUSER REPLICATION LOGIN PASSWORD 'pgsecret one'")
	owner.ok("init", "--outbox-table")
	u, err := url.Parse(owner.db)
	must(t, err)
	u.User = url.User("clouded")
	r := *owner
	r.db = u.String()
	dir := t.TempDir()
	tool, password := filepath.Join(dir, "tool"), filepath.Join(dir, "password")
	prints := func(text string) { must(t, os.WriteFile(password, []byte(text), 0o600)) }
	prints("pgsecret one\n")
	must(t, os.WriteFile(tool, []byte("#!/bin/sh\ncat \"$2\" && echo \"for $1\" >&2\n"), 0o700))
	r.source = fmt.Sprintf("  password: '${exec:%s \"toksecret argument\" %s}'", tool, password)
	if out := r.ok("config", "print"); !strings.Contains(out, "${exec:"+tool+" [redacted]}") {
		t.Errorf("config print: %s", out)
	} else {
		hidden(t, out)
	}
	relay := r.start()
	owner.insert(3)
	says(t, relay, "/metrics", 200, `cdc_relay_events_total{outcome="published"} 3`)

	// The password changes, and the tool is late.
	prints("pgsecret one\npgsecret two\n")
	owner.exec("ALTER ROLE clouded PASSWORD 'pgsecret two'")
	owner.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clouded'")
	state(t, relay, "waiting for postgres", "source.password", "it prints 2 lines, want one: for [redacted]")
	owner.insert(3)
	prints("pgsecret two\n")
	says(t, relay, "/metrics", 200, `cdc_relay_events_total{outcome="published"} 6`)
	ended(t, relay)
	hidden(t, relay.Log())

	r.source = "  password: '${exec:/no/such/tool toksecret}'"
	hidden(t, r.refused(2, "run", "source.password: run /no/such/tool: "))
}
