//go:build nightly

// A PostgreSQL certificate that is wrong, for longer than the relay waits for a login.

package long

import (
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A client certificate that is no login of the role is a login refused: exit 1 after a minute
// without ever a connection. One with which there is no TLS is waited for as a server is that is
// not there, longer than that.
func TestWrongPostgresCertificate(t *testing.T) {
	certs, err := testcerts.NewCertificates()
	await.Must(t, err)
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{Certs: certs, HBA: []string{"hostssl all certified 127.0.0.1/32 cert"}})
	await.Must(t, err)
	t.Cleanup(func() { closed(t, pg) })
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.SQL("CREATE ROLE certified SUPERUSER LOGIN")
	u, err := url.Parse(s.DB)
	s.Must(err)
	launch := func(client testcerts.CertificateFiles) *runner.Relay {
		owner := s.DB
		s.DB = pg.TLSURL(strings.TrimPrefix(u.Path, "/"), "certified", certs.CA, client)
		r := s.Launch()
		s.DB = owner
		return r
	}
	waiting, refused := launch(certs.ExpiredClient), launch(certs.Client)
	code, err := refused.Exit(s.Context())
	s.Must(err)
	if log := refused.Log(); code != 1 || !strings.Contains(log, `certificate authentication failed for user \"certified\"`) || !strings.Contains(log, "sslcert") {
		t.Errorf("relay ended with %d, want 1 and a word about the certificate", code)
	}
	if s.Unready(waiting, "renew the client certificate"); !waiting.Running() {
		t.Error("a relay has ended whose certificate is expired")
	}
}
