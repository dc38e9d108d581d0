package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// operation is one method of one path of the document.
type operation struct {
	method, path string
	open         bool // needs no token
}

// operations are all of the document. A path's parameters are filled in with something.
func operations(t *testing.T) (all []operation) {
	t.Helper()
	var doc struct {
		Security []map[string]any
		Paths    map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Security) == 0 {
		t.Fatal("the document asks for no token")
	}
	for path, item := range doc.Paths {
		path = strings.NewReplacer("{n}", "1", "{id}", "e1").Replace(path)
		if strings.Contains(path, "{") {
			t.Fatalf("fill in the parameter of %s", path)
		}
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var of struct {
				Security *[]map[string]any
			}
			if err := json.Unmarshal(raw, &of); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			all = append(all, operation{strings.ToUpper(method), path, of.Security != nil && len(*of.Security) == 0})
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d operations were found", len(all))
	}
	return all
}

// Every route of the document, and so every route (TestOpenAPI), needs a token, except the probes
// and metrics; changes need one with the role operate.
func TestEveryRouteAsksForItsToken(t *testing.T) {
	with := func(tokens ...Token) string {
		return serve(t, func(c *Config) { c.Tokens, c.API.Operators = tokens, dlq.New(down{}, "s") })
	}
	both, none := with(fixed("ann", "read", false), fixed("ops", "operate", true)), with()
	const passed = 0 // any answer that is not about tokens
	var open []string
	for _, op := range operations(t) {
		check := func(base, authorization string, want int) {
			t.Helper()
			code, body, header := send(t, op.method, base+op.path, "", "Authorization", authorization)
			refused := code == http.StatusUnauthorized || code == http.StatusForbidden
			switch {
			case want == passed && refused, want != passed && code != want, code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
				t.Errorf("%s %s with %q answers %d, want %d: %s", op.method, op.path, authorization, code, want, body)
			case refused && header.Get("Content-Type") != "application/problem+json":
				t.Errorf("%s %s: the refusal is %s", op.method, op.path, header.Get("Content-Type"))
			}
		}
		if op.open {
			open = append(open, op.path)
			check(both, "", passed)
			check(none, "", passed)
			continue
		}
		mayRead := 403
		if op.method == http.MethodGet {
			mayRead = passed
		}
		check(both, "", 401)
		check(both, "Bearer wrong", 401)
		check(both, asAnn, mayRead)
		check(both, asOps, passed)
		check(none, "", 401) // on loopback, too
		check(none, "Bearer ", 401)
	}
	slices.Sort(open)
	if want := []string{"/healthz", "/metrics", "/readyz"}; !slices.Equal(open, want) {
		t.Errorf("without a token one can have %v, want %v", open, want)
	}
}

// A method that a route does not have needs a token, too: its answer says nothing without one.
func TestOtherMethodsAskForATokenToo(t *testing.T) {
	base := serve(t, func(*Config) {})
	served := map[string]map[string]bool{}
	for _, op := range operations(t) {
		if served[op.path] == nil {
			served[op.path] = map[string]bool{}
		}
		served[op.path][op.method] = true
	}
	for _, path := range slices.Sorted(maps.Keys(served)) {
		if !strings.HasPrefix(path, "/api/") {
			continue
		}
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"} {
			if code, body, _ := send(t, method, base+path, "", "Authorization", ""); code != 401 {
				t.Errorf("%s %s answers %d without a token: %s", method, path, code, body)
			}
		}
	}
}

// unread is the answer to a client that does not read.
type unread struct {
	*httptest.ResponseRecorder
	begun, go_ chan struct{}
}

func (u unread) Write(content []byte) (int, error) {
	close(u.begun)
	<-u.go_
	return len(content), nil
}

// A large answer that is not read keeps no other one in memory; small ones are sent beside it.
func TestOneLargeAnswerAtOnce(t *testing.T) {
	s := &Server{}
	size := largeAnswer + 1
	h := s.guard("/x", methods{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }}, newRooms())
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
		return w
	}
	slow, done := unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(done)
		h(slow, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
	}()
	<-slow.begun
	if w := ask(); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a second large answer: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	size = largeAnswer
	if w := ask(); w.Code != 200 {
		t.Errorf("a small answer beside it: %d", w.Code)
	}
	close(slow.go_)
	<-done
	size = largeAnswer + 1
	if w := ask(); w.Code != 200 || w.Body.Len() != size {
		t.Errorf("after it: %d, %d bytes", w.Code, w.Body.Len())
	}
}

// Probes have a bound, too: 32 at once, and the next one is told to come again.
func TestProbesHaveABound(t *testing.T) {
	begun, go_ := make(chan struct{}, 33), make(chan struct{})
	h := new(Server).guard("/healthz", methods{http.MethodGet: func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-go_
	}}, newRooms())
	ask := func() int {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
		return w.Code
	}
	var all sync.WaitGroup
	release := sync.OnceFunc(func() { close(go_) })
	for range 32 {
		all.Go(func() { ask() })
	}
	for range 32 {
		<-begun
	}
	all.Go(func() {
		if code := ask(); code != 503 {
			t.Errorf("the 33rd probe at once answers %d, want 503", code)
		}
		release()
	})
	select {
	case <-begun:
		t.Error("a 33rd probe is in work")
		release()
	case <-go_:
	}
	all.Wait()
}
