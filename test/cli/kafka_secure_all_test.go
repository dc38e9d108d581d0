//go:build testall

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// securedKafka has logins, certificates and rights. Nobody may do what no ACL allows.
type securedKafka struct {
	*kafkaserver.Kafka
	certs *testcerts.Certificates
}

func TestSecureKafka(t *testing.T) {
	t.Parallel()
	kafka, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{
		Secure: true, Users: map[string]string{"relay": "mqsecret"}, Authorizer: true,
		// The tests' own connections have no login; the relay's have.
		Settings: map[string]string{"allow.everyone.if.no.acl.found": "false", "super.users": "User:node;User:ANONYMOUS;User:CN=auditor"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, kafka.Close()) })
	s := &securedKafka{kafka, kafka.Certs()}
	t.Run("rights", s.rights)
	t.Run("compare", s.compares)
	t.Run("secrets are read again", s.readsSecretsAgain)
}

// password and certificate are keys of the section kafka.
func (s *securedKafka) password(password string) string {
	return fmt.Sprintf("tls: {enabled: true, ca: %s}, sasl: {mechanism: scram-sha-512, username: relay, password: '%s'}", s.certs.CA, password)
}

func (s *securedKafka) certificate(ca string, client testcerts.CertificateFiles) string {
	return "tls: {enabled: true, " + tlsFiles(ca, client) + "}"
}

// The rights that docs/kafka.md#rights asks for are enough, for a user and for the name of a
// certificate: Write, Describe and Read on the topics of a prefix. A topic that is not granted is
// paused, by name, and the others flow.
func (s *securedKafka) rights(t *testing.T) {
	kafka := s.Kafka
	for name, c := range map[string]struct{ brokers, login, principal, said string }{
		"user":        {kafka.SASLTLSBrokers()[0], s.password("mqsecret"), "User:relay", "User:relay"},
		"certificate": {kafka.MTLSBrokers()[0], s.certificate(s.certs.CA, s.certs.Client), "User:CN=relay", "User:NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &topical{rig: newRig(t), kafka: kafka}
			publishTo := func(topic string) {
				k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: '%s', %s}", c.brokers, topic, c.login)
			}
			insert := func(aggregate string) string {
				return ask[string](k.rig, `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), $1, '1', 'created') RETURNING id::text`, aggregate)
			}
			prefix := name + ".event."
			inside, outside := prefix+"order", name+".ledger"
			for _, topic := range []string{inside, outside} {
				must(t, kafka.CreateTopic(await.Context(t), topic, 3, 1, nil))
			}
			publishTo(prefix + "{aggregate}")
			k.ok("init")
			k.finds("producer id", "fail", []string{"Authorization Failed"}, []string{" --command-config admin.properties --add --allow-principal " + c.said + " --operation Write --operation Describe --operation Read --topic " + prefix + " --resource-pattern-type prefixed"})

			must(t, kafka.Grant(await.Context(t), prefix, c.principal))
			for _, topic := range []string{prefix + "{aggregate}", inside} {
				publishTo(topic)
				for _, f := range checked(t, k.ok("check", "--json")) {
					if f.Level != "ok" && !ofSuperuser(f) && f.Name != "allowed topics" || f.Name == fmt.Sprintf("topic %q", topic) && !hasAll(f.Detail, []string{"3 partitions", "largest message", "not visible", "DescribeConfigs"}) {
						t.Errorf("check of %s with the documented rights: %+v", topic, f)
					}
				}
			}
			publishTo(prefix + "x{aggregate}")
			k.finds(fmt.Sprintf("topic %q", prefix+"x{aggregate}"), "warn", []string{"that this user may describe"}, []string{"--create --topic " + prefix + "xAGGREGATE", "grant the right"})
			publishTo(outside)
			k.finds(fmt.Sprintf("topic %q", outside), "fail", []string{"Topic Authorization Failed"}, []string{"kafka-acls.sh", "--topic " + outside})

			publishTo("{aggregate}")
			relay := k.start()
			id := insert(outside)
			if p := deferred(t, relay, 1).Broker.Paused[0]; p.Destination != fmt.Sprintf("topic %q", outside) || p.Reason != "not_permitted" {
				t.Errorf("paused is %+v", p)
			}
			for n := range 3 {
				insert(inside)
				k.records(inside, n+1)
			}
			must(t, kafka.Grant(await.Context(t), outside, c.principal))
			if r := k.records(outside, 1)[0]; r.Header("id") != id {
				t.Errorf("what arrived is %+v", r)
			}
			eventually(t, func() string { return drained(t, relay) })
			ended(t, relay)
			hidden(t, relay.Log())
		})
	}
}

// compares wants that compare debezium uses the TLS of the configuration's sink.
func (s *securedKafka) compares(t *testing.T) {
	topics := &sameTopics{t, s.Kafka, s.Topic(t, 1), s.Topic(t, 1)}
	for _, topic := range []string{topics.theirs, topics.ours} {
		topics.write(topic, record(0, "e", "k", "v"))
	}
	auditor, err := s.certs.IssueClient("auditor", time.Now().Add(time.Hour))
	must(t, err)
	config := fmt.Sprintf("source: {url: postgres://h/d}\nsink: {kafka: {brokers: ['%s'], %s}}\n", s.MTLSBrokers()[0], s.certificate(s.certs.CA, auditor))
	if got, _ := compareDebezium(t, config, 0, "--theirs", topics.theirs, "--ours", topics.ours, "--from", "beginning", "--lag", "1s"); got.Equal != 1 {
		t.Errorf("%+v", got)
	}
}

// Certificates and the password of Kafka are read at each connect: relays that run take new ones up
// when the broker was restarted. (A broker keeps a connection whose certificate or password was
// good once.) What they say has what to do; TestFixTLS of internal/sink and TestFixDial of
// internal/sink/kafka have the errors that no broker is needed for.
func (s *securedKafka) readsSecretsAgain(t *testing.T) {
	ctx := await.Context(t)
	start := func(principal, broker, login string) (*topical, *runner.Relay) {
		k := &topical{rig: newRig(t), kafka: s.Kafka, topic: s.Topic(t, 1)}
		must(t, s.Grant(ctx, k.topic, principal))
		k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, %s}", broker, k.topic, login)
		k.more = "log: {level: debug}\n"
		return k, k.start()
	}
	files, password := newClientFiles(t, s.certs), filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("mqsecret\n"), 0o600))
	certified, byCertificate := start("User:CN=relay", s.MTLSBrokers()[0], s.certificate(files.ca, files.client))
	user, byPassword := start("User:relay", s.SASLTLSBrokers()[0], s.password("${file:"+password+"}"))

	files.put(s.certs.Stranger)
	must(t, s.SetPassword(ctx, "relay", "another mqsecret"))
	must(t, s.KillNode(1))
	must(t, s.StartNode(ctx, 1))
	for _, k := range []*topical{certified, user} {
		k.insert(1) // a relay with nothing to publish would notice at its next look at the topics
	}
	state(t, byPassword, "broker down", "uthentication failed", "check sink.kafka.sasl")
	state(t, byCertificate, "broker down", "check sink.kafka.tls.cert and key")
	files.copy(s.certs.StrangerCA, files.ca)
	state(t, byCertificate, "broker down", "certificate signed by unknown authority", "set sink.kafka.tls.ca")

	must(t, os.WriteFile(password, []byte("another mqsecret\n"), 0o600))
	renewed, err := s.certs.IssueClient("relay", time.Now().Add(time.Hour))
	must(t, err)
	files.copy(s.certs.CA, files.ca)
	files.put(renewed)
	for k, relay := range map[*topical]*runner.Relay{certified: byCertificate, user: byPassword} {
		must(t, relay.WaitReady(ctx))
		k.records(k.topic, 1)
		hidden(t, relay.Log())
		ended(t, relay)
	}
}
