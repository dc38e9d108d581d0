package admin

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
)

func TestTokens(t *testing.T) {
	base := serve(t, func(*Config) {})
	for authorization, want := range map[string]int{
		"":                 401,
		"Bearer":           401,
		"Bearer ":          401,
		"Bearer wrong":     401,
		"Bearer operat":    401,
		"Bearer operatee":  401,
		"Bearer ops":       401, // a name
		"Basic operate":    401,
		"operate":          401,
		"Bearer operate":   200,
		"bearer read":      200,
		"Bearer operate  ": 200,
	} {
		code, header := ask(t, http.MethodGet, base+"/api/v1/status", authorization, nil)
		if code != want {
			t.Errorf("%q answers %d, want %d", authorization, code, want)
		}
		if code == 401 && !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%q: WWW-Authenticate is %q", authorization, header.Get("WWW-Authenticate"))
		}
	}
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/nothing", "", nil); code != 401 {
		t.Errorf("an unknown path of /api answers %d without a token, want 401", code)
	}
}

// A token is read at each request. One that cannot be read, or is emptied, opens nothing, leaves
// the others as they are, and is logged once, not at every request.
func TestTokenIsReadAgain(t *testing.T) {
	var mu sync.Mutex
	token, readErr := "old", error(nil)
	set := func(value string, err error) {
		mu.Lock()
		defer mu.Unlock()
		token, readErr = value, err
	}
	core, logs := observer.New(zap.WarnLevel)
	base := serve(t, func(c *Config) {
		c.Log = zap.New(core)
		c.Tokens = append([]Token{{Name: "bob", Read: func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return token, readErr
		}}}, c.Tokens...)
	})
	check := func(authorization string, want int) {
		t.Helper()
		if code, _ := ask(t, http.MethodGet, base+"/api/v1/status", authorization, nil); code != want {
			t.Errorf("%s answers %d, want %d", authorization, code, want)
		}
	}
	set("new", nil)
	check("Bearer old", 401)
	check("Bearer new", 200)
	set("", nil)
	check("Bearer ", 401)
	set("", errors.New("the file is missing"))
	for range 3 {
		check("Bearer new", 401)
		check(asOps, 200)
	}
	if n := logs.FilterMessage("admin access is limited, delivery goes on").Len(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}

// A page of another site has nothing from the API: not by a form, not by a script, and not under a
// name that was made to lead here. Even with a token, which a page could only have if it was told.
func TestOtherSites(t *testing.T) {
	const reached, discard, list = 503, "/api/v1/dead-letters/1/discard", "/api/v1/deferred"
	base := serve(t, func(c *Config) { c.API.Operators = dlq.New(down{}, "s") })
	host := strings.TrimPrefix(base, "http://")
	for _, c := range []struct {
		method, path string
		want         int
		headers      []string
	}{
		{"POST", discard, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"POST", discard, 403, []string{"Origin", "http://evil.example"}},
		{"POST", discard, 403, []string{"Origin", "null"}},
		{"POST", discard, 415, []string{"Content-Type", "text/plain"}},
		{"POST", discard, 415, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"POST", discard, 415, []string{"Content-Type", ""}},
		{"POST", discard, reached, []string{"Origin", base, "Sec-Fetch-Site", "same-origin"}},
		{"DELETE", "/api/v1/jobs/1", 403, []string{"Origin", "http://evil.example"}},
		{"GET", list, 403, []string{"Origin", "http://evil.example"}},
		{"GET", list, 403, []string{"Sec-Fetch-Site", "same-site"}},
		{"GET", list, reached, []string{"Origin", base}},
		// DNS rebinding: the browser takes the page and the relay for one site, but has no token
		{"GET", list, 401, []string{"Host", "evil.example", "Origin", "http://evil.example", "Authorization", ""}},
		{"POST", discard, 401, []string{"Host", "evil.example", "Origin", "http://evil.example", "Authorization", ""}},
	} {
		code, body, _ := send(t, c.method, base+c.path, "{}", c.headers...)
		if code != c.want {
			t.Errorf("%s %s %q to %s answers %d, want %d: %s", c.method, c.path, c.headers, host, code, c.want, body)
		}
	}
}

// Without a token a probe tells a word, no name, error or id.
func TestProbesTellAWord(t *testing.T) {
	base := serve(t, func(*Config) {})
	for path, want := range map[string]string{"/healthz": `{"healthy":true}`, "/readyz": `{"ready":true,"role":"leader"}`} {
		for _, authorization := range []string{"", "Bearer wrong"} {
			if code, body, _ := send(t, http.MethodGet, base+path, "", "Authorization", authorization); code != 200 || strings.TrimSpace(body) != want {
				t.Errorf("%s with %q answers %d %s, want %s", path, authorization, code, body, want)
			}
		}
	}
}

// What is refused is counted, and logged once in a while: whoever reaches the port must not fill
// the log's disk, nor write lines of its own into it.
func TestRefusalsAreCountedAndLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	m := metrics.New("", "", "")
	base := serve(t, func(c *Config) { c.Metrics, c.Log = m, zap.New(core) })
	for range 5 {
		send(t, http.MethodGet, base+"/api/v1/a%0aforged", "", "Authorization", "Bearer guess")
	}
	send(t, http.MethodGet, base+"/healthz", "", "Authorization", "Bearer guess")
	send(t, http.MethodPost, base+"/api/v1/dead-letters/1/discard", "", "Authorization", asAnn)
	_, body, _ := send(t, http.MethodGet, base+"/metrics", "")
	for _, want := range []string{`cdc_relay_admin_refused_total{code="401"} 6`, `cdc_relay_admin_refused_total{code="403"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	lines := logs.FilterMessage("admin request refused").All()
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1", len(lines))
	}
	if said := lines[0].ContextMap(); strings.Contains(said["path"].(string), "guess") || said["code"] != int64(401) {
		t.Errorf("the line says %v", said)
	}
}

// A read does not wait behind a change that takes long, and what is too much at once is refused.
func TestReadsDoNotWaitForChanges(t *testing.T) {
	db := hanging{begun: make(chan struct{}, 100), go_: make(chan struct{})}
	base := serve(t, func(c *Config) { c.API.Operators = dlq.New(db, "s") })
	done := make(chan int, 100)
	post := func() {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/v1/dead-letters/1/discard", strings.NewReader("{}"))
		request.Header.Set("Authorization", asOps)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			done <- 0
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		done <- answer.StatusCode
	}
	for range 17 {
		go post()
	}
	<-db.begun
	if code := <-done; code != 503 { // the one that has no place
		t.Errorf("the 17th change at once answers %d, want 503", code)
	}
	if code, body, _ := send(t, http.MethodGet, base+"/api/v1/jobs", ""); code != 503 || !strings.Contains(body, errDown.Error()) {
		t.Errorf("a read beside them answers %d %s, want the database's answer", code, body)
	}
	close(db.go_)
	for range 16 {
		<-done
	}
}

// In the middle of an incident, while all reads wait for PostgreSQL, the relay says what it knows.
func TestStatusDoesNotWaitForTheDatabase(t *testing.T) {
	db := hanging{begun: make(chan struct{}, 100), go_: make(chan struct{}), reads: true}
	base := serve(t, func(c *Config) {
		c.API.Operators, c.API.Config = dlq.New(db, "s"), func() any { return []string{} }
	})
	var reads sync.WaitGroup
	codes := make(chan int, 17)
	for range 17 {
		reads.Go(func() {
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/jobs", nil)
			request.Header.Set("Authorization", asAnn)
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				codes <- 0
				return
			}
			_ = answer.Body.Close()
			codes <- answer.StatusCode
		})
	}
	if code := <-codes; code != 503 { // the one that has no place
		t.Errorf("the 17th read at once answers %d, want 503", code)
	}
	for _, path := range knownPaths {
		if code, body, _ := send(t, http.MethodGet, base+path, "", "Authorization", asAnn); code != 200 {
			t.Errorf("%s beside them answers %d %s", path, code, body)
		}
	}
	close(db.go_)
	reads.Wait()
}

// A change is recorded with the name that it was let through by, also when the token is rotated in
// between.
func TestRotationLosesNoName(t *testing.T) {
	asked, name := 0, ""
	s := &Server{cfg: Config{Tokens: []Token{{Name: "ops", Operate: true, Read: func() (string, error) {
		asked++
		return []string{"old", "new"}[min(asked-1, 1)], nil
	}}}}}
	h := s.authorize(func(*http.Request) rights { return operator }, func(_ http.ResponseWriter, r *http.Request) { name = callerName(r) })
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer old")
	h(httptest.NewRecorder(), r)
	if name != "token ops from 192.0.2.1" {
		t.Errorf("it is recorded as %q", name)
	}
}

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
