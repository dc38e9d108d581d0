package admin

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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
	for _, want := range []string{`outbox_admin_refused_total{code="401"} 6`, `outbox_admin_refused_total{code="403"} 1`} {
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
