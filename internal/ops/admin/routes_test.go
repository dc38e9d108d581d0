package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
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
