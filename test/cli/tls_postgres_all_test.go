//go:build testall

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// secured is a server that wants TLS, and client certificates: of the role certified as its login,
// of the role relay beside a password.
type secured struct {
	pg    *pgserver.Postgres
	certs *testcerts.Certificates
	owner *rig // without TLS
}

func securedBy(t *testing.T, certs *testcerts.Certificates) secured {
	t.Helper()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Certs: certs, HBA: []string{
		"hostssl all certified 127.0.0.1/32 cert",
		"hostssl all relay 127.0.0.1/32 scram-sha-256 clientcert=verify-full",
	}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	s := secured{pg, certs, on(t, pg.URL("postgres"))}
	s.owner.exec(load.OutboxTable)
	s.owner.exec(`CREATE ROLE certified LOGIN SUPERUSER; CREATE ROLE relay LOGIN SUPERUSER PASSWORD 'pgsecret'`)
	s.owner.ok("init")
	return s
}

// as is the owner's rig with a relay that logs in otherwise.
func (s secured) as(url string) *rig {
	r := *s.owner
	r.db = url
	return &r
}

func (s secured) client(t *testing.T, name string, until time.Duration) testcerts.CertificateFiles {
	t.Helper()
	files, err := s.certs.IssueClient(name, time.Now().Add(until))
	must(t, err)
	return files
}

func TestPostgresOverTLS(t *testing.T) {
	t.Parallel()
	certs, err := testcerts.NewCertificates()
	must(t, err)
	s := securedBy(t, certs)
	t.Run("login", s.judgesLogin)
	t.Run("password is read again", s.readsPasswordAgain)
	t.Run("certificates are read again", s.readsCertificatesAgain)
}

// A login over TLS that only this server can take is what check calls it.
func (s secured) judgesLogin(t *testing.T) {
	r := s.as(s.pg.TLSURL("postgres", "relay", s.certs.CA, s.certs.Client) + "&require_auth=scram-sha-256")
	r.t, r.source = t, "  password: pgsecret\n"
	if f := line(t, r.command("check", "--json"), "postgres login"); f.Level != "ok" || f.Detail != "over TLS, and the server is verified" {
		t.Errorf("check finds %+v", f)
	}
}

// A password that is refused is waited for with one line, and read again at every try: one that is
// corrected in its file is taken up without a restart.
func (s secured) readsPasswordAgain(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("pgsecret-wrong\n"), 0o600))
	r := s.as(s.pg.TLSURL("postgres", "relay", s.certs.CA, s.certs.Client))
	r.t, r.source = t, "  password: ${file:"+password+"}\n"
	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", `password authentication failed for user "relay"`, "source.password")
	says(t, relay, "/readyz", 503, "waiting for postgres")
	must(t, os.WriteFile(password, []byte("pgsecret\n"), 0o600))
	must(t, relay.WaitReady(await.Context(t)))
	ended(t, relay)
	hidden(t, relay.Log())
	if n := strings.Count(relay.Log(), "waiting for PostgreSQL"); n != 1 {
		t.Errorf("%d lines about the password, want 1: %s", n, relay.Log())
	}
}

// A file that source.url names and that is not there at the start is a fault of the configuration.
func TestMissingCertificateOfPostgres(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.db += "&sslmode=verify-full&sslrootcert=/nowhere/ca.pem"
	r.db = strings.Replace(r.db, "sslmode=disable&", "", 1)
	r.refused(2, "run", "source.url", "/nowhere/ca.pem")
}

// Certificates are read at each connect, of the pool and of the stream: a relay that waits with bad
// ones goes on when they are renewed, and one that runs takes new ones up when its connections are
// cut. Files that are only half replaced are waited for. What it says has what to do; TestFixOfTLS
// of internal/replication/source has the errors that no server is needed for.
func (s secured) readsCertificatesAgain(t *testing.T) {
	files := newClientFiles(t, s.certs)
	way := proxy(t, s.pg.Addr())
	r := s.as(through(s.pg.TLSURL("postgres", "certified", files.ca, files.client), way.Addr()))
	r.t = t
	owner := *s.owner
	owner.t = t
	cut := func() {
		way.Cut()
		must(t, way.Restore())
	}
	files.put(s.client(t, "certified", -time.Hour))
	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", "tls: expired certificate", "renew the client certificate, sslcert in source.url")
	says(t, relay, "/readyz", 503, "expired certificate")
	files.put(s.client(t, "certified", time.Hour))
	must(t, relay.WaitReady(await.Context(t)))

	committed := 0
	for _, bad := range []struct {
		words, fix string
		spoil      func()
	}{
		{"unknown certificate authority", "ssl_ca_file", func() { files.put(s.certs.Stranger) }},
		{"private key does not match public key", "", func() { files.copy(s.certs.Client.Cert, files.client.Cert) }},
		{"sslkey: open " + files.client.Key, "", func() { must(t, os.Remove(files.client.Key)) }},
		{"certificate signed by unknown authority", "set sslrootcert in source.url", func() { files.copy(s.certs.StrangerCA, files.ca) }},
	} {
		bad.spoil()
		cut()
		state(t, relay, "waiting for postgres", bad.words, bad.fix)
		owner.insert(1)
		committed++
		files.copy(s.certs.CA, files.ca)
		files.put(s.client(t, "certified", time.Hour))
		must(t, relay.WaitReady(await.Context(t)))
		eventually(t, func() string { return wantLines(relay, committed) })
	}
	ended(t, relay)
}

// clientFiles are a relay's files of TLS, which a test replaces while the relay runs.
type clientFiles struct {
	t      *testing.T
	ca     string
	client testcerts.CertificateFiles
}

func newClientFiles(t *testing.T, certs *testcerts.Certificates) *clientFiles {
	t.Helper()
	dir := t.TempDir()
	f := &clientFiles{t, filepath.Join(dir, "ca.pem"), testcerts.CertificateFiles{Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client.key")}}
	f.copy(certs.CA, f.ca)
	f.put(certs.Client)
	return f
}

// put replaces the client certificate and its key.
func (f *clientFiles) put(from testcerts.CertificateFiles) {
	f.t.Helper()
	f.copy(from.Cert, f.client.Cert)
	f.copy(from.Key, f.client.Key)
}

// copy replaces a file as it should be done: by another one under its name.
func (f *clientFiles) copy(from, to string) {
	f.t.Helper()
	replaceFile(f.t, from, to)
}

func replaceFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to+".new", text, 0o600))
	must(t, os.Rename(to+".new", to))
}
