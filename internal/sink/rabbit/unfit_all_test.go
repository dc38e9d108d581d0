//go:build testall

package rabbit

import (
	"net/url"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Of a real broker that lacks what an address asks for, check says what it has and what to change.
func TestUnfitBroker(t *testing.T) {
	t.Parallel()
	certs, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	real, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{Management: true, Certs: certs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	})
	b := connect(t, real, real.URL())
	b.exchange("events", nil)
	u, err := url.Parse(b.url)
	b.must(err)
	at := func(scheme, host, query string) string {
		other := *u
		other.Scheme, other.Host, other.RawQuery = scheme, host, query
		return other.String()
	}
	finds := func(address, detail, fix string) {
		t.Helper()
		cfg := b.config()
		cfg.URLs, cfg.TLS = []string{address}, sink.TLS{}.Load("")
		wantFinding(t, Check(b.ctx, cfg), "broker", false, detail, fix)
	}
	finds(at("amqps", u.Host, ""), "the port does not speak TLS", "sink.rabbitmq.url")
	finds(at("amqp", real.TLSAddr(), ""), "the port expects TLS", "write amqps://")
	finds(at("amqp", u.Host, "auth_mechanism=external"), "mechanism EXTERNAL is not enabled, the broker has ", "write amqps://")
	b.eval("application:set_env(rabbit, auth_mechanisms, ['AMQPLAIN']).")
	finds(at("amqp", u.Host, ""), "mechanism PLAIN is not enabled, the broker has AMQPLAIN", "auth_mechanisms")
}
