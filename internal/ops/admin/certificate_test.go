package admin

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// The certificate is read again when it changes. A broken one leaves the one before, one that has
// expired is used and logged, and a client without a certificate of the CA is turned away.
func TestCertificate(t *testing.T) {
	certs, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := TLSFiles{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	replace := func(name string, until time.Time) {
		t.Helper()
		made, err := certs.IssueClient(name, until)
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{made.Cert: files.Cert, made.Key: files.Key} {
			content, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to+".new", content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(to+".new", to); err != nil {
				t.Fatal(err)
			}
		}
	}
	core, logs := observer.New(zap.WarnLevel)
	base := serve(t, func(c *Config) { c.TLS, c.Log = files, zap.New(core) })
	shown := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", strings.TrimPrefix(base, "http://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is read, not trusted
		if err != nil {
			return ""
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	// net/http logs each handshake that fails too, after the client has seen it
	const limited = "admin access is limited, delivery goes on"
	said := func(words string) {
		t.Helper()
		all := logs.FilterMessage(limited).All()
		logs.TakeAll()
		if len(all) != 1 || !strings.Contains(all[0].ContextMap()["reason"].(string), words) {
			t.Errorf("the log says %v, want %q once", all, words)
		}
	}
	if name := shown(); name != "" {
		t.Errorf("without a file it shows %q", name)
	}
	if all := logs.FilterMessage(limited).Len(); all != 1 {
		t.Errorf("a certificate that is missing is logged %d times", all)
	}
	logs.TakeAll()
	replace("first", time.Now().Add(30*24*time.Hour))
	if name := shown(); name != "first" {
		t.Errorf("it shows %q, want the certificate that came later", name)
	}
	replace("second", time.Now().Add(time.Hour))
	if name := shown(); name != "second" {
		t.Errorf("it shows %q, want the new certificate", name)
	}
	said("expires on")
	if err := os.WriteFile(files.Cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name := shown(); name != "second" {
		t.Errorf("beside a broken file it shows %q, want the one before", name)
	}
	said("admin.tls.cert: cannot use")
	replace("third", time.Now().Add(-time.Hour))
	if name := shown(); name != "third" {
		t.Errorf("it shows %q, want the one that has expired", name)
	}
	said("has expired on")
	if code, err := http.Get(strings.Replace(base, "http:", "https:", 1) + "/healthz"); err == nil {
		_ = code.Body.Close()
		t.Error("a client takes a certificate that has expired")
	}
}

// A certificate that ends while the relay runs is said when it does, once at each step.
func TestCertificateEnds(t *testing.T) {
	certs, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(30 * 24 * time.Hour)
	made, err := certs.IssueClient("relay", ends)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	now := time.Now()
	c := &certificate{files: TLSFiles{Cert: made.Cert, Key: made.Key}, log: zap.New(core), now: func() time.Time { return now }}
	for _, at := range []struct {
		now  time.Time
		said string
	}{{now, ""}, {ends.Add(-time.Hour), "expires on"}, {ends.Add(time.Hour), "has expired on"}} {
		now = at.now
		for range 2 {
			if _, err := c.config(nil); err != nil {
				t.Fatal(err)
			}
		}
		var said []string
		for _, line := range logs.TakeAll() {
			said = append(said, line.ContextMap()["reason"].(string))
		}
		if at.said == "" && said != nil || at.said != "" && (len(said) != 1 || !strings.Contains(said[0], at.said)) {
			t.Errorf("at %s the log says %q, want %q once", at.now, said, at.said)
		}
	}
}

func TestClientCertificate(t *testing.T) {
	certs, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	own, err := certs.IssueClient("relay", time.Now().Add(time.Hour*24*30))
	if err != nil {
		t.Fatal(err)
	}
	base := serve(t, func(c *Config) { c.TLS = TLSFiles{Cert: own.Cert, Key: own.Key, CA: certs.CA} })
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, with := range map[string][]tls.Certificate{"without": nil, "with": {pair}} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{Certificates: with, InsecureSkipVerify: true}}} //nolint:gosec // the server judges here
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(base, "http:", "https:", 1)+"/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		switch {
		case name == "without" && err == nil:
			t.Errorf("a client without a certificate is answered %d", answer.StatusCode)
		case name == "with" && (err != nil || answer.StatusCode != http.StatusUnauthorized):
			t.Errorf("a client with one, and no token, is answered %v, %v, want 401", answer, err)
		}
		if err == nil {
			_ = answer.Body.Close()
		}
	}
}

// Metrics that have a port of their own are only there; the API is not.
func TestMetricsListen(t *testing.T) {
	var metrics string
	base := serve(t, func(c *Config) { c.MetricsListen = "127.0.0.1:0" }, func(s *Server) { metrics = "http://" + s.metrics.Addr().String() })
	for url, want := range map[string]int{
		base + "/metrics": 404, base + "/readyz": 200, base + "/api/v1/status": 200,
		metrics + "/metrics": 200, metrics + "/healthz": 200, metrics + "/readyz": 200, metrics + "/api/v1/status": 404,
	} {
		if code, body, _ := send(t, http.MethodGet, url, ""); code != want {
			t.Errorf("%s answers %d, want %d: %.100s", url, code, want, body)
		}
	}
}
