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
	t.Run("refused", s.refusesTLS)
	t.Run("login", s.judgesLogin)
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

// What can be wrong with TLS and with a login over it: check says it in one line, with what to do.
// What a relay that waits says is the same; see refuses.
func (s secured) refusesTLS(t *testing.T) {
	good := s.client(t, "certified", time.Hour)
	for name, c := range map[string]struct {
		user, ca   string
		files      testcerts.CertificateFiles
		words, fix string
	}{
		"expired":        {"certified", s.certs.CA, s.client(t, "certified", -time.Hour), "tls: expired certificate", "renew the client certificate, sslcert in source.url"},
		"stranger":       {"certified", s.certs.CA, s.certs.Stranger, "tls: unknown certificate authority", "ssl_ca_file"},
		"none":           {"certified", s.certs.CA, testcerts.CertificateFiles{}, "connection requires a valid client certificate", "its certificate (sslcert)"},
		"another role's": {"certified", s.certs.CA, s.certs.Client, `certificate authentication failed for user "certified"`, "its certificate (sslcert)"},
		"server's CA":    {"certified", s.certs.StrangerCA, good, "certificate signed by unknown authority", "set sslrootcert in source.url"},
		"password":       {"relay", s.certs.CA, s.certs.Client, `password authentication failed for user "relay"`, "source.password"},
	} {
		t.Run(name, func(t *testing.T) {
			s.finds(t, s.pg.TLSURL("postgres", c.user, c.ca, c.files), c.words, c.fix)
		})
	}
}

// A server whose certificate has expired is waited for as well.
func TestPostgresOfExpiredCertificate(t *testing.T) {
	t.Parallel()
	certs, err := testcerts.NewCertificates()
	must(t, err)
	certs.Server = certs.ExpiredServer
	s := securedBy(t, certs)
	const words = "certificate has expired"
	saidOnce(t, s.refuses(t, s.pg.TLSURL("postgres", "relay", certs.CA, certs.Client), words, "renew the server's certificate"), "waiting for PostgreSQL", words)
}

// finds runs check.
func (s secured) finds(t *testing.T, url, words, fix string) *rig {
	t.Helper()
	r := s.as(url)
	r.t, r.source = t, "  password: pgsecret-wrong\n"
	res := r.command("check", "--json")
	hidden(t, res.Stdout+res.Stderr)
	if f := checked(t, res.Stdout)[0]; res.Code != 1 || f.Name != "postgres" || f.Level != "fail" || !strings.Contains(f.Detail, words) || !strings.Contains(f.Fix, fix) {
		t.Errorf("check finds %+v", f)
	}
	return r
}

// refuses runs check, and a relay that waits, and returns what that has logged.
func (s secured) refuses(t *testing.T, url, words, fix string) (log string) {
	t.Helper()
	r := s.finds(t, url, words, fix)
	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", words, fix)
	says(t, relay, "/readyz", 503, words)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
	return relay.Log()
}

// saidOnce looks for the one line of a log that says what the matter is.
func saidOnce(t *testing.T, log, line, words string) {
	t.Helper()
	if n := strings.Count(log, line); n != 1 || !strings.Contains(log, words) {
		t.Errorf("%d lines about it, want one: %s", n, log)
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
// cut. Files that are only half replaced are waited for.
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
	state(t, relay, "waiting for postgres", "expired certificate")
	files.put(s.client(t, "certified", time.Hour))
	must(t, relay.WaitReady(await.Context(t)))

	committed := 0
	for _, bad := range []struct {
		words string
		spoil func()
	}{
		{"unknown certificate authority", func() { files.put(s.certs.Stranger) }},
		{"private key does not match public key", func() { files.copy(s.certs.Client.Cert, files.client.Cert) }},
		{"sslkey: open " + files.client.Key, func() { must(t, os.Remove(files.client.Key)) }},
		{"certificate signed by unknown authority", func() { files.copy(s.certs.StrangerCA, files.ca) }},
	} {
		bad.spoil()
		cut()
		state(t, relay, "waiting for postgres", bad.words)
		owner.insert(1)
		committed++
		files.copy(s.certs.CA, files.ca)
		files.put(s.client(t, "certified", time.Hour))
		must(t, relay.WaitReady(await.Context(t)))
		eventually(t, func() string { return wantLines(relay, committed) })
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
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

// tls is the files as the section tls of a sink.
func (f *clientFiles) tls(more string) string {
	return fmt.Sprintf("tls: {%sca: %s, cert: %s, key: %s}", more, f.ca, f.client.Cert, f.client.Key)
}
