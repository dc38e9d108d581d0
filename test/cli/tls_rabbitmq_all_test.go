//go:build testall

package cli

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
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
	t.Run("refused", m.refusesTLS)
	t.Run("compare", m.compares)
	t.Run("broker's expired", m.expires)
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

// TLS of RabbitMQ that cannot be: check says it in one line, with what to do. What a relay that
// waits says is the same; see refuses.
func (m *mutual) refusesTLS(t *testing.T) {
	whole := newRig(t)
	expired, err := m.certs.IssueClient("relay", time.Now().Add(-time.Hour))
	must(t, err)
	good := tlsFiles(m.certs.CA, m.certs.Client)
	for name, c := range map[string]struct{ url, tls, words, fix string }{
		"expired":   {"", tlsFiles(m.certs.CA, expired), "expired", "renew the client certificate, sink.rabbitmq.tls.cert"},
		"stranger":  {"", tlsFiles(m.certs.CA, m.certs.Stranger), "unknown certificate authority", "check sink.rabbitmq.tls.cert and key"},
		"none":      {"", "ca: " + m.certs.CA, "certificate required", "set sink.rabbitmq.tls.cert and key"},
		"broker's":  {"", tlsFiles(m.certs.StrangerCA, m.certs.Client), "certificate signed by unknown authority", "set sink.rabbitmq.tls.ca"},
		"name":      {"", good + ", server_name: elsewhere", "not elsewhere", "sink.rabbitmq.tls.server_name"},
		"no file":   {"", "ca: /nowhere/ca.pem", "sink.rabbitmq.tls.ca: open /nowhere/ca.pem", ""},
		"password":  {"", good, "403", "check sink.rabbitmq.username and password"},
		"plaintext": {m.mq.Addr(), good, "does not look like a TLS handshake", "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			r := *whole
			r.t = t
			m.finds(&r, cmp.Or(c.url, m.mq.TLSAddr()), c.tls, c.words, c.fix)
		})
	}
}

// expires restarts the broker with a certificate that has expired.
func (m *mutual) expires(t *testing.T) {
	must(t, m.mq.Stop(await.Context(t)))
	replaceFile(t, m.certs.ExpiredServer.Cert, m.certs.Server.Cert)
	replaceFile(t, m.certs.ExpiredServer.Key, m.certs.Server.Key)
	must(t, m.mq.Start(await.Context(t)))
	eventually(t, func() string { // its listener for TLS comes after the other one
		conn, err := new(net.Dialer).DialContext(await.Context(t), "tcp", m.mq.TLSAddr())
		if err != nil {
			return err.Error()
		}
		must(t, conn.Close())
		return ""
	})
	const words = "certificate has expired or is not yet valid: after "
	saidOnce(t, m.refuses(t, m.mq.TLSAddr(), tlsFiles(m.certs.CA, m.certs.Client), words, "renew the broker's certificate"), "broker unavailable", words)
}

// tlsFiles are keys of the section tls of a sink.
func tlsFiles(ca string, client testcerts.CertificateFiles) string {
	return fmt.Sprintf("ca: %s, cert: '%s', key: '%s'", ca, client.Cert, client.Key)
}

// finds runs check.
func (m *mutual) finds(r *rig, host, tls, words, fix string) {
	r.t.Helper()
	r.sink = fmt.Sprintf("  rabbitmq: {url: 'amqps://%s/', username: relay, password: mqsecret-wrong, declare: true, tls: {%s}}", host, tls)
	found := false
	res := r.command("check", "--json")
	for _, f := range checked(r.t, res.Stdout) {
		if f.Name == "broker" && f.Level == "fail" && strings.Contains(f.Detail, words) && strings.Contains(f.Fix, fix) {
			found = true
		}
	}
	if !found {
		r.t.Errorf("no line with %q and %q: %s", words, fix, res.Stdout)
	}
}

// refuses runs check, and a relay that waits, and returns what that has logged.
func (m *mutual) refuses(t *testing.T, host, tls, words, fix string) (log string) {
	t.Helper()
	r := newRig(t)
	m.finds(r, host, tls, words, fix)
	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "broker down", words, fix)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
	return relay.Log()
}

// Certificates and the password of RabbitMQ are read at each connect: a relay that runs takes new
// ones up when its connections are cut.
func (m *mutual) readsSecretsAgain(t *testing.T) {
	files := newClientFiles(t, m.certs)
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) { must(t, os.WriteFile(password, []byte(text+"\n"), 0o600)) }
	write(m.password)
	way := proxy(t, m.mq.TLSAddr())
	r := newRig(t)
	r.sink = fmt.Sprintf("  rabbitmq: {url: 'amqps://%s/', username: relay, password: '${file:%s}', declare: true, %s}",
		way.Addr(), password, files.tls(""))
	relay := r.start()
	consumer, err := consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: m.mq.URL()})
	must(t, err)
	t.Cleanup(consumer.Close)

	for i, c := range []struct {
		words string
		spoil func()
	}{
		{"unknown certificate authority", func() { files.put(m.certs.Stranger) }},
		{"private key does not match public key", func() { files.copy(m.certs.ExpiredClient.Cert, files.client.Cert) }},
		{"certificate signed by unknown authority", func() { files.copy(m.certs.StrangerCA, files.ca) }},
		{"403", func() {
			m.password = "new-mqsecret"
			_, err := m.mq.Ctl(await.Context(t), "change_password", "relay", m.password)
			must(t, err)
		}},
	} {
		c.spoil()
		way.Cut()
		must(t, way.Restore())
		state(t, relay, "broker down", c.words)
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
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
