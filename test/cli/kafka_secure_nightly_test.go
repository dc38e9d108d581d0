//go:build nightly

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

func init() {
	securedParts = append(securedParts, securedPart{"rights of a certificate", (*securedKafka).rightsOfCertificate},
		securedPart{"compare", (*securedKafka).compares}, securedPart{"secrets are read again", (*securedKafka).readsSecretsAgain})
}

// certificate is keys of the section kafka.
func (s *securedKafka) certificate(ca string, client testcerts.CertificateFiles) string {
	return "tls: {enabled: true, " + tlsFiles(ca, client) + "}"
}

func (s *securedKafka) rightsOfCertificate(t *testing.T) {
	kafkaLogin{s.MTLSBrokers()[0], s.certificate(s.certs.CA, s.certs.Client), "User:CN=relay", "User:NAME"}.rights(t, s.Kafka, "certificate")
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
