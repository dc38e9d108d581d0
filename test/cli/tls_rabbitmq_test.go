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

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// mutual is a RabbitMQ whose TLS port wants a client certificate.
type mutual struct {
	mq    *devenv.Rabbit
	certs *devenv.Certificates
}

func mutualRabbitMQ(t *testing.T) mutual {
	t.Helper()
	certs, err := devenv.NewCertificates()
	must(t, err)
	mq, err := devenv.StartRabbitMQ(within(t, 4*bound), devenv.RabbitOptions{Certs: certs})
	must(t, err)
	t.Cleanup(func() { must(t, mq.Close()) })
	_, err = mq.Ctl(within(t, bound), "add_user", "relay", "mqsecret")
	must(t, err)
	_, err = mq.Ctl(within(t, bound), "set_permissions", "relay", ".*", ".*", ".*")
	must(t, err)
	return mutual{mq, certs}
}

// TLS of RabbitMQ that cannot be: check and the waiting relay say it in one line, with what to do.
func TestRabbitMQRefusesOverTLS(t *testing.T) {
	t.Parallel()
	m := mutualRabbitMQ(t)
	expired, err := m.certs.IssueClient("relay", time.Now().Add(-time.Hour))
	must(t, err)
	tls := func(ca string, client devenv.CertificateFiles) string {
		return fmt.Sprintf("ca: %s, cert: '%s', key: '%s'", ca, client.Cert, client.Key)
	}
	good := tls(m.certs.CA, m.certs.Client)
	for name, c := range map[string]struct{ url, tls, words, mend string }{
		"expired":   {"", tls(m.certs.CA, expired), "expired", "renew the client certificate, sink.rabbitmq.tls.cert"},
		"stranger":  {"", tls(m.certs.CA, m.certs.Stranger), "unknown certificate authority", "check sink.rabbitmq.tls.cert and key"},
		"none":      {"", "ca: " + m.certs.CA, "certificate required", "set sink.rabbitmq.tls.cert and key"},
		"broker's":  {"", tls(m.certs.StrangerCA, m.certs.Client), "certificate signed by unknown authority", "set sink.rabbitmq.tls.ca"},
		"name":      {"", good + ", server_name: elsewhere", "not elsewhere", "sink.rabbitmq.tls.server_name"},
		"no file":   {"", "ca: /nowhere/ca.pem", "sink.rabbitmq.tls.ca: open /nowhere/ca.pem", ""},
		"password":  {"", good, "403", "check sink.rabbitmq.username and password"},
		"plaintext": {m.mq.Addr(), good, "does not look like a TLS handshake", "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			saidOnce(t, m.refuses(t, cmp.Or(c.url, m.mq.TLSAddr()), c.tls, c.words, c.mend), "broker unavailable", c.words)
		})
	}
	t.Run("compare", m.compares)
	must(t, m.mq.Stop(within(t, bound)))
	replaceFile(t, m.certs.ExpiredServer.Cert, m.certs.Server.Cert)
	replaceFile(t, m.certs.ExpiredServer.Key, m.certs.Server.Key)
	must(t, m.mq.Start(within(t, 2*bound)))
	eventually(t, func() string { // its listener for TLS comes after the other one
		conn, err := new(net.Dialer).DialContext(within(t, bound), "tcp", m.mq.TLSAddr())
		if err != nil {
			return err.Error()
		}
		must(t, conn.Close())
		return ""
	})
	t.Run("broker's expired", func(t *testing.T) {
		const words = "certificate has expired or is not yet valid: after "
		saidOnce(t, m.refuses(t, m.mq.TLSAddr(), good, words, "renew the broker's certificate"), "broker unavailable", words)
	})
}

// refuses runs check, and a relay that waits, and returns what that has logged.
func (m mutual) refuses(t *testing.T, host, tls, words, mend string) (log string) {
	t.Helper()
	r := newRig(t)
	r.sink = fmt.Sprintf("  rabbitmq: {url: 'amqps://%s/', username: relay, password: mqsecret-wrong, declare: true, tls: {%s}}", host, tls)
	found := false
	res := r.command("check", "--json")
	for _, f := range checked(t, res.Stdout) {
		if f.Name == "broker" && f.Level == "fail" && strings.Contains(f.Detail, words) && strings.Contains(f.Mend, mend) {
			found = true
		}
	}
	if !found {
		t.Errorf("no line with %q and %q: %s", words, mend, res.Stdout)
	}
	relay := devenv.StartRelay(t, r.binary, r.yaml())
	state(t, relay, "broker down", words, mend)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
	return relay.Log()
}

// Certificates and the password of RabbitMQ are read at each connect: a relay that runs takes new ones up when its
// connections are cut.
func TestRabbitMQSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	m := mutualRabbitMQ(t)
	files := newClientFiles(t, m.certs)
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) { must(t, os.WriteFile(password, []byte(text+"\n"), 0o600)) }
	write("mqsecret")
	way := proxy(t, m.mq.TLSAddr())
	r := newRig(t)
	r.sink = fmt.Sprintf("  rabbitmq: {url: 'amqps://%s/', username: relay, password: '${file:%s}', declare: true, %s}",
		way.Addr(), password, files.tls(""))
	relay := r.start()
	consumer, err := devenv.StartConsumer(within(t, bound), devenv.ConsumerOptions{URL: m.mq.URL()})
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
			_, err := m.mq.Ctl(within(t, bound), "change_password", "relay", "new mqsecret")
			must(t, err)
		}},
	} {
		c.spoil()
		way.Cut()
		must(t, way.Mend())
		state(t, relay, "broker down", c.words)
		r.insert(1)
		renewed, err := m.certs.IssueClient("relay", time.Now().Add(time.Hour))
		must(t, err)
		files.copy(m.certs.CA, files.ca)
		files.put(renewed)
		if c.words == "403" {
			write("new mqsecret")
		}
		must(t, relay.WaitReady(within(t, bound)))
		must(t, consumer.WaitCount(within(t, bound), i+1))
	}
	hidden(t, relay.Log())
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
