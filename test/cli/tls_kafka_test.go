package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func securedKafka(t *testing.T) *devenv.Kafka {
	t.Helper()
	kafka, err := devenv.StartKafka(within(t, 4*bound), devenv.KafkaOptions{Secure: true, Users: map[string]string{"relay": "mqsecret"}})
	must(t, err)
	t.Cleanup(func() { must(t, kafka.Close()) })
	return kafka
}

func secureTopic(t *testing.T, kafka *devenv.Kafka) *topical {
	t.Helper()
	return &topical{rig: newRig(t), kafka: kafka, topic: kafka.Topic(t, 1)}
}

// TLS of Kafka that cannot be, and what a relay that waits says of it: one line, with what to do.
func TestKafkaRefusesOverTLS(t *testing.T) {
	t.Parallel()
	kafka := securedKafka(t)
	certs := kafka.Certs()
	tls := func(ca string, client devenv.CertificateFiles) string {
		return fmt.Sprintf("ca: %s, cert: '%s', key: '%s'", ca, client.Cert, client.Key)
	}
	refuses := func(t *testing.T, tls, words, mend string) (log string) {
		k := secureTopic(t, kafka)
		k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, tls: {enabled: true, %s}}", kafka.MTLSBrokers()[0], k.topic, tls)
		k.ok("init")
		k.finds("broker", "fail", []string{words}, []string{mend})
		relay := devenv.StartRelay(t, k.binary, k.yaml())
		state(t, relay, "broker down", words, mend)
		if code := relay.Stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
		return relay.Log()
	}
	for name, c := range map[string]struct{ tls, words, mend string }{
		"expired":   {tls(certs.CA, certs.ExpiredClient), "tls: ", "sink.kafka.tls.cert"},
		"stranger":  {tls(certs.CA, certs.Stranger), "tls: ", "check sink.kafka.tls.cert and key"},
		"none":      {"ca: " + certs.CA, "tls: ", "sink.kafka.tls.cert and key"},
		"brokers'":  {tls(certs.StrangerCA, certs.Client), "certificate signed by unknown authority", "set sink.kafka.tls.ca"},
		"name":      {tls(certs.CA, certs.Client) + ", server_name: elsewhere", "not elsewhere", "sink.kafka.tls.server_name"},
		"half a CA": {"ca: " + certs.Client.Key, "sink.kafka.tls.ca: no certificate in", ""},
	} {
		t.Run(name, func(t *testing.T) { saidOnce(t, refuses(t, c.tls, c.words, c.mend), "broker unavailable", c.words) })
	}
	t.Run("compare", func(t *testing.T) { compareOverTLS(t, kafka) })
	replaceFile(t, certs.ExpiredServer.Both, certs.Server.Both)
	must(t, kafka.KillNode(1))
	must(t, kafka.StartNode(within(t, 2*bound), 1))
	t.Run("brokers' expired", func(t *testing.T) {
		const words = "certificate has expired or is not yet valid: after "
		saidOnce(t, refuses(t, tls(certs.CA, certs.Client), words, "renew the broker's certificate"), "broker unavailable", words)
	})
}

// Certificates and the password of Kafka are read at each connect: a relay that runs takes new ones up when the broker was
// restarted. (A broker keeps a connection whose certificate or password was good once.)
func TestKafkaSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	kafka := securedKafka(t)
	certs := kafka.Certs()
	restart := func() {
		must(t, kafka.KillNode(1))
		must(t, kafka.StartNode(within(t, 2*bound), 1))
	}
	t.Run("certificate", func(t *testing.T) {
		k, files := secureTopic(t, kafka), newClientFiles(t, certs)
		k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, %s}", kafka.MTLSBrokers()[0], k.topic, files.tls("enabled: true, "))
		relay := k.start()
		for i, bad := range []struct {
			words string
			spoil func()
		}{
			{"sink.kafka.tls.cert", func() { files.put(certs.Stranger) }},
			{"private key does not match public key", func() { files.copy(certs.ExpiredClient.Cert, files.client.Cert) }},
			{"certificate signed by unknown authority", func() { files.copy(certs.StrangerCA, files.ca) }},
		} {
			bad.spoil()
			restart()
			k.insert(1) // a relay with nothing to publish would notice at its next look at the topics
			state(t, relay, "broker down", bad.words)
			renewed, err := certs.IssueClient("relay", time.Now().Add(time.Hour))
			must(t, err)
			files.copy(certs.CA, files.ca)
			files.put(renewed)
			must(t, relay.WaitReady(within(t, bound)))
			k.records(k.topic, i+1)
		}
		if code := relay.Stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("password", func(t *testing.T) {
		k, password := secureTopic(t, kafka), filepath.Join(t.TempDir(), "password")
		must(t, os.WriteFile(password, []byte("mqsecret\n"), 0o600))
		k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: %s, tls: {enabled: true, ca: %s}, sasl: {mechanism: scram-sha-256, username: relay, password: '${file:%s}'}}",
			kafka.SASLTLSBrokers()[0], k.topic, certs.CA, password)
		relay := k.start()
		must(t, kafka.SetPassword(within(t, bound), "relay", "another mqsecret"))
		restart()
		k.insert(1)
		state(t, relay, "broker down", "uthentication failed", "check sink.kafka.sasl")
		must(t, os.WriteFile(password, []byte("another mqsecret\n"), 0o600))
		must(t, relay.WaitReady(within(t, bound)))
		k.records(k.topic, 1)
		if code := relay.Stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
		hidden(t, relay.Log())
	})
}
