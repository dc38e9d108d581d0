//go:build nightly

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
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
