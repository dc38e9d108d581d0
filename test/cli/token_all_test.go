//go:build testall

// Logins by what does not stand in the configuration: tokens of an issuer, and what a command
// prints.

package cli

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// From nothing to a record, at a Kafka that takes nobody without a token. An issuer that refuses
// the client, and a broker that refuses the token, are lines of check with what to do.
func TestKafkaByToken(t *testing.T) {
	t.Parallel()
	i, err := issuer.Start()
	must(t, err)
	t.Cleanup(func() { must(t, i.Close()) })
	kafka, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{Issuer: i})
	must(t, err)
	t.Cleanup(func() { must(t, kafka.Close()) })
	k := &topical{rig: newRig(t), kafka: kafka, topic: kafka.Topic(t, 3)}
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("wrong mqsecret"), 0o600))
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, sasl: {mechanism: oauthbearer, oauth: {token_url: '%s', client_id: %s, client_secret: '${file:%s}', scopes: [a, b], audience: kafka}}}",
		kafka.TokenBrokers()[0], k.topic, i.TokenURL(), issuer.ClientID, secret)
	byToken := k.sink
	k.ok("init")
	k.finds("broker", "fail", []string{"ask the issuer", "401 Unauthorized, invalid_client (no such client)"}, []string{"sink.kafka.sasl.oauth"})
	must(t, os.WriteFile(secret, []byte(issuer.Secret), 0o600))
	i.Give(issuer.Token{Audience: "kafka", Life: time.Hour})
	for _, f := range checked(t, k.ok("check", "--json")) {
		if f.Level != "ok" && !ofSuperuser(f) {
			t.Errorf("%+v", f)
		}
	}
	relay := k.start()
	k.insert(25)
	k.records(k.topic, 25)
	if form := i.Asked()[len(i.Asked())-1]; form.Get("scope") != "a b" || form.Get("audience") != "kafka" {
		t.Errorf("the issuer is asked with %v", form)
	}
	ended(t, relay)
	hidden(t, relay.Log())
	i.Give(issuer.Token{Audience: "another", Life: time.Hour})
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, sasl: {mechanism: plain, username: relay, password: mqsecret}}", kafka.TokenBrokers()[0], k.topic)
	hidden(t, k.refused(2, "run", "the brokers lack what the configuration asks for", "mechanism PLAIN is not enabled, the listener has OAUTHBEARER", "set sink.kafka.sasl.mechanism"))
	k.sink = byToken
	k.finds("broker", "fail", []string{"the broker refuses the token", "of issuer " + i.URL + `, for audience "another"`}, []string{"audience"})
}

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
