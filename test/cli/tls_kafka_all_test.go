//go:build testall

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// TestKafkaOverTLS has all of it on one cluster, of which the last part spoils the certificate.
func TestKafkaOverTLS(t *testing.T) {
	t.Parallel()
	kafka, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{Secure: true, Users: map[string]string{"relay": "mqsecret"}})
	must(t, err)
	t.Cleanup(func() { must(t, kafka.Close()) })
	s := &securedKafka{kafka, kafka.Certs()}
	t.Run("logins", s.logins)
	t.Run("refused", s.refusesTLS)
	t.Run("compare", func(t *testing.T) { compareOverTLS(t, kafka) })
	t.Run("certificate is read again", s.readsCertificateAgain)
	t.Run("password is read again", s.readsPasswordAgain)
	t.Run("brokers' expired", s.expires)
}

type securedKafka struct {
	*kafkaserver.Kafka
	certs *testcerts.Certificates
}

func (s *securedKafka) restart(t *testing.T) {
	t.Helper()
	must(t, s.KillNode(1))
	must(t, s.StartNode(await.Context(t), 1))
}

func secureTopic(t *testing.T, kafka *kafkaserver.Kafka) *topical {
	t.Helper()
	return &topical{rig: newRig(t), kafka: kafka, topic: kafka.Topic(t, 1)}
}

// TLS of Kafka that cannot be: check says it in one line, with what to do. What a relay that waits
// says is the same; see expires.
func (s *securedKafka) refusesTLS(t *testing.T) {
	k := secureTopic(t, s.Kafka)
	k.ok("init")
	for name, c := range map[string]struct{ tls, words, fix string }{
		"expired":   {tlsFiles(s.certs.CA, s.certs.ExpiredClient), "tls: ", "sink.kafka.tls.cert"},
		"stranger":  {tlsFiles(s.certs.CA, s.certs.Stranger), "tls: ", "check sink.kafka.tls.cert and key"},
		"none":      {"ca: " + s.certs.CA, "tls: ", "sink.kafka.tls.cert and key"},
		"brokers'":  {tlsFiles(s.certs.StrangerCA, s.certs.Client), "certificate signed by unknown authority", "set sink.kafka.tls.ca"},
		"name":      {tlsFiles(s.certs.CA, s.certs.Client) + ", server_name: elsewhere", "not elsewhere", "sink.kafka.tls.server_name"},
		"half a CA": {"ca: " + s.certs.Client.Key, "sink.kafka.tls.ca: no certificate in", ""},
	} {
		t.Log(name)
		s.finds(k, c.tls, c.words, c.fix)
	}
}

// finds runs check.
func (s *securedKafka) finds(k *topical, tls, words, fix string) {
	k.t.Helper()
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, tls: {enabled: true, %s}}", s.MTLSBrokers()[0], k.topic, tls)
	k.finds("broker", "fail", []string{words}, []string{fix})
}

func (s *securedKafka) expires(t *testing.T) {
	replaceFile(t, s.certs.ExpiredServer.Both, s.certs.Server.Both)
	s.restart(t)
	const words = "certificate has expired or is not yet valid: after "
	const fix = "renew the broker's certificate"
	k := secureTopic(t, s.Kafka)
	k.ok("init")
	s.finds(k, tlsFiles(s.certs.CA, s.certs.Client), words, fix)
	relay := runner.Start(t, k.binary, k.yaml())
	state(t, relay, "broker down", words, fix)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	saidOnce(t, relay.Log(), "broker unavailable", words)
}

// Certificates and the password of Kafka are read at each connect: a relay that runs takes new ones
// up when the broker was restarted. (A broker keeps a connection whose certificate or password was
// good once.) What can be wrong with the files while they are replaced is what it is for RabbitMQ
// and PostgreSQL.
func (s *securedKafka) readsCertificateAgain(t *testing.T) {
	k, files := secureTopic(t, s.Kafka), newClientFiles(t, s.certs)
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, %s}", s.MTLSBrokers()[0], k.topic, files.tls("enabled: true, "))
	relay := k.start()
	files.put(s.certs.Stranger)
	s.restart(t)
	k.insert(1) // a relay with nothing to publish would notice at its next look at the topics
	state(t, relay, "broker down", "sink.kafka.tls.cert")
	files.copy(s.certs.StrangerCA, files.ca)
	state(t, relay, "broker down", "certificate signed by unknown authority")
	renewed, err := s.certs.IssueClient("relay", time.Now().Add(time.Hour))
	must(t, err)
	files.copy(s.certs.CA, files.ca)
	files.put(renewed)
	must(t, relay.WaitReady(await.Context(t)))
	k.records(k.topic, 1)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func (s *securedKafka) readsPasswordAgain(t *testing.T) {
	k, password := secureTopic(t, s.Kafka), filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("mqsecret\n"), 0o600))
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, tls: {enabled: true, ca: %s}, sasl: {mechanism: scram-sha-256, username: relay, password: '${file:%s}'}}",
		s.SASLTLSBrokers()[0], k.topic, s.certs.CA, password)
	relay := k.start()
	must(t, s.SetPassword(await.Context(t), "relay", "another mqsecret"))
	s.restart(t)
	k.insert(1)
	state(t, relay, "broker down", "uthentication failed", "check sink.kafka.sasl")
	must(t, os.WriteFile(password, []byte("another mqsecret\n"), 0o600))
	must(t, relay.WaitReady(await.Context(t)))
	k.records(k.topic, 1)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
}

// A login that is refused is waited for, and its password read again at every try, beside a
// certificate that is checked; a listener that wants a certificate of the relay gets one. No secret
// is in any log.
func (s *securedKafka) logins(t *testing.T) {
	kafka, certs := s.Kafka, s.certs
	password := filepath.Join(t.TempDir(), "password")

	t.Run("password over TLS", func(t *testing.T) {
		k := &topical{rig: newRig(t), kafka: kafka, topic: kafka.Topic(t, 1)}
		must(t, os.WriteFile(password, []byte("mqsecret-wrong\n"), 0o600))
		k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, tls: {enabled: true, ca: %s}, sasl: {mechanism: scram-sha-512, username: relay, password: '${file:%s}'}}",
			strings.Join(kafka.SASLTLSBrokers(), ","), k.topic, certs.CA, password)
		k.more = "log: {level: debug}\n"
		k.ok("init")
		k.finds("broker", "fail", []string{"uthentication failed"}, []string{"sink.kafka.sasl"})
		relay := runner.Start(t, k.binary, k.yaml())
		state(t, relay, "broker down", "uthentication failed")
		k.insert(1)
		must(t, os.WriteFile(password, []byte("mqsecret\n"), 0o600))
		must(t, relay.WaitReady(await.Context(t)))
		k.records(k.topic, 1)
		saysNoSecret(t, relay)
		hidden(t, k.command("check").Stdout)
		if code := relay.Stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
		hidden(t, relay.Log())
	})
	t.Run("secrets", func(t *testing.T) {
		for _, mechanism := range []string{"plain", "scram-sha-256"} {
			r := newRig(t)
			r.sink = fmt.Sprintf("  kafka: {brokers: ['%s', '127.0.0.1:1'], topic: events, sasl: {mechanism: %s, username: mqsecret-user, password: mqsecret-wrong}}",
				kafka.SASLBrokers()[0], mechanism)
			r.showsNoSecret()
		}
	})
	t.Run("certificate", func(t *testing.T) {
		k := &topical{rig: newRig(t), kafka: kafka, topic: kafka.Topic(t, 1)}
		with := func(tls string) {
			k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s%s}", strings.Join(kafka.MTLSBrokers(), ","), k.topic, tls)
		}
		with(", tls: {enabled: true}")
		k.ok("init")
		k.finds("broker", "fail", []string{"certificate signed by unknown authority"}, []string{"sink.kafka.tls.ca"})
		with("")
		k.finds("broker", "fail", []string{"TLS"}, []string{"sink.kafka.tls"})
		with(fmt.Sprintf(", tls: {enabled: true, ca: %s}", certs.CA))
		k.finds("broker", "fail", []string{"certificate"}, []string{"sink.kafka.tls.cert"})
		with(fmt.Sprintf(", tls: {enabled: true, ca: %s, cert: %s, key: %s}", certs.CA, certs.Client.Cert, certs.Client.Key))
		relay := k.start()
		k.insert(1)
		k.records(k.topic, 1)
		relay.Stop(t)
	})
}
