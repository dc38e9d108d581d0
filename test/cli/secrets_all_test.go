//go:build testall

package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// Passwords and tokens are in no log, at any level, and in no output: not while all goes well, not
// of what fails. Kafka's are in TestSecureKafka.
func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	vhost := servers.SharedRabbitMQ(t).VHost(t)
	r.sink = "  rabbitmq: {url: ['" + as(vhost, "guest", "mqsecret") + "', 'amqp://guest:mqsecret@127.0.0.1:1/']}"
	// The broker refuses the login, and PostgreSQL goes away.
	p := proxy(t, servers.SharedPostgres(t).Addr())
	r.db = as(through(r.db, p.Addr()), "postgres", "pgsecret") // it trusts us whatever we say
	r.more = "log: {level: debug}\n"
	config := strings.Replace(r.yaml(), "127.0.0.1:0}", "127.0.0.1:0, tokens: [{name: a, role: read, value: toksecret-0123456789}]}", 1)
	relay := runner.Start(t, r.binary, config)
	says(t, relay, "/readyz", 503, "broker down", `"role":"leader"`)
	r.insert(1)
	p.Cut()
	says(t, relay, "/readyz", 503, "waiting for postgres", "broker down")
	must(t, p.Restore())
	says(t, relay, "/readyz", 503, `"role":"leader"`)
	saysNoSecret(t, relay)
	for _, args := range []string{"init", "check", "check --json", "status", "status --json", "teardown --yes", "config print", "config validate"} {
		res, err := runner.RunCommand(await.Context(t), r.binary, config, strings.Fields(args)...)
		must(t, err)
		hidden(t, res.Stdout+res.Stderr)
	}
	must(t, relay.Kill())
	hidden(t, relay.Log())
}

// saysNoSecret reads what the admin port and the log say now.
func saysNoSecret(t *testing.T, relay *runner.Relay) {
	t.Helper()
	for _, path := range []string{"/readyz", "/healthz", "/metrics", "/api/v1/status", "/api/v1/config", "/api/v1/history"} {
		_, body, err := relay.Get(await.Context(t), path)
		must(t, err)
		hidden(t, body)
	}
	hidden(t, relay.Log())
}
