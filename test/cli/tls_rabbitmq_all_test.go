//go:build testall

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// mutual is a RabbitMQ whose TLS port wants a client certificate.
type mutual struct {
	mq       *rabbitserver.Rabbit
	certs    *testcerts.Certificates
	password string // of the user relay
}

func TestRabbitMQOverTLS(t *testing.T) {
	t.Parallel()
	m := mutualRabbitMQ(t)
	t.Run("secrets are read again", m.readsSecretsAgain)
	t.Run("compare", m.compares)
}

func mutualRabbitMQ(t *testing.T) *mutual {
	t.Helper()
	certs, err := testcerts.NewCertificates()
	must(t, err)
	mq, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{Certs: certs})
	must(t, err)
	t.Cleanup(func() { must(t, mq.Close()) })
	_, err = mq.Ctl(await.Context(t), "add_user", "relay", "mqsecret")
	must(t, err)
	_, err = mq.Ctl(await.Context(t), "set_permissions", "relay", ".*", ".*", ".*")
	must(t, err)
	return &mutual{mq, certs, "mqsecret"}
}

// tlsFiles are keys of the section tls of a sink.
func tlsFiles(ca string, client testcerts.CertificateFiles) string {
	return fmt.Sprintf("ca: %s, cert: '%s', key: '%s'", ca, client.Cert, client.Key)
}

// Certificates and the password of RabbitMQ are read at each connect: a relay that runs takes new
// ones up when its connections are cut. What it says has what to do; TestFixTLS of internal/sink
// has the errors that no broker is needed for.
func (m *mutual) readsSecretsAgain(t *testing.T) {
	files := newClientFiles(t, m.certs)
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) { must(t, os.WriteFile(password, []byte(text+"\n"), 0o600)) }
	write(m.password)
	way := proxy(t, m.mq.TLSAddr())
	r := newRig(t)
	r.sink = fmt.Sprintf("  rabbitmq: {url: 'amqps://%s/', username: relay, password: '${file:%s}', declare: true, tls: {%s}}",
		way.Addr(), password, tlsFiles(files.ca, files.client))
	relay := r.start()
	consumer, err := consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: m.mq.URL()})
	must(t, err)
	t.Cleanup(consumer.Close)
	expired, err := m.certs.IssueClient("relay", time.Now().Add(-time.Hour))
	must(t, err)

	for i, c := range []struct {
		words, fix string
		spoil      func()
	}{
		{"expired", "renew the client certificate, sink.rabbitmq.tls.cert", func() { files.put(expired) }},
		{"unknown certificate authority", "check sink.rabbitmq.tls.cert and key", func() { files.put(m.certs.Stranger) }},
		{"private key does not match public key", "", func() { files.copy(m.certs.ExpiredClient.Cert, files.client.Cert) }},
		{"certificate signed by unknown authority", "set sink.rabbitmq.tls.ca", func() { files.copy(m.certs.StrangerCA, files.ca) }},
		{"403", "check sink.rabbitmq.username and password", func() {
			m.password = "new-mqsecret"
			_, err := m.mq.Ctl(await.Context(t), "change_password", "relay", m.password)
			must(t, err)
		}},
	} {
		c.spoil()
		way.Cut()
		must(t, way.Restore())
		state(t, relay, "broker down", c.words, c.fix)
		r.insert(1)
		renewed, err := m.certs.IssueClient("relay", time.Now().Add(time.Hour))
		must(t, err)
		files.copy(m.certs.CA, files.ca)
		files.put(renewed)
		if c.words == "403" {
			write(m.password)
		}
		must(t, relay.WaitReady(await.Context(t)))
		must(t, consumer.WaitCount(await.Context(t), i+1))
	}
	hidden(t, relay.Log())
	ended(t, relay)
}

// compares wants that compare debezium uses the login and the TLS of the configuration's sink.
func (m *mutual) compares(t *testing.T) {
	config := fmt.Sprintf("source: {url: postgres://h/d}\nsink: {rabbitmq: {url: 'amqps://%s/', username: relay, password: %s, tls: {%s}}}\n",
		m.mq.TLSAddr(), m.password, tlsFiles(m.certs.CA, m.certs.Client))
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), config, "compare", "debezium", "--theirs", "amq.topic", "--ours", "amq.fanout", "--for", "1s", "--lag", "1s")
	must(t, err)
	refusal(t, res, 1, "no event was compared")
}
