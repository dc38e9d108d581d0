//go:build testall

package cli

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// onOwn is a rig with an outbox table on a server of its own.
func onOwn(t *testing.T, settings map[string]string) *rig {
	t.Helper()
	p, err := pgserver.Start(await.Context(t), pgserver.Options{Settings: settings, NoFsync: true})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	r := on(t, p.URL("postgres"))
	r.exec(load.OutboxTable)
	return r
}

// A password that is refused is waited for, and read again at every try: one that is corrected in
// its file is taken up without a restart. Neither is ever written to the log.
func TestPasswordsAreReadAgain(t *testing.T) {
	t.Parallel()
	// PostgreSQL is another user, who cannot enter t.TempDir
	dir, err := os.MkdirTemp("", "cdc-relay-cli-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	hba := filepath.Join(dir, "pg_hba.conf")
	must(t, os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost postgres relay 127.0.0.1/32 scram-sha-256\n"), 0o644))
	r := onOwn(t, map[string]string{"hba_file": hba})
	r.exec(`CREATE ROLE relay LOGIN SUPERUSER PASSWORD 'pgsecret'`)
	r.db = as(r.db, "relay", "")

	vhost, err := url.Parse(servers.SharedRabbitMQ(t).VHost(t))
	must(t, err)
	password, _ := vhost.User.Password()
	user := vhost.User.Username()
	vhost.User = nil
	pgFile, mqFile := filepath.Join(dir, "pg"), filepath.Join(dir, "mq")
	must(t, os.WriteFile(pgFile, []byte("pgsecret-wrong\n"), 0o600))
	must(t, os.WriteFile(mqFile, []byte("mqsecret-wrong\n"), 0o600))
	r.source = "  password: ${file:" + pgFile + "}"
	r.sink = "  rabbitmq: {declare: true, url: '" + vhost.String() + "', username: " + user + ", password: '${file:" + mqFile + "}'}"

	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", "password authentication failed")
	says(t, relay, "/readyz", 503, "waiting for postgres", "broker down", "403")
	must(t, os.WriteFile(pgFile, []byte("pgsecret\n"), 0o600))
	state(t, relay, "broker down", "403")
	must(t, os.WriteFile(mqFile, []byte(password+"\n"), 0o600))
	must(t, relay.WaitReady(await.Context(t)))
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
	if n := strings.Count(relay.Log(), "waiting for PostgreSQL"); n != 1 {
		t.Errorf("%d lines about the password, want 1: %s", n, relay.Log())
	}
}
