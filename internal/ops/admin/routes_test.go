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

// Every route of the document, and so every route (TestOpenAPI), needs a token, except health and
// metrics; changes need admin.token.
func TestEveryRouteAsksForItsToken(t *testing.T) {
	with := func(token, read TokenReader) string {
		return serve(t, func(c *Config) { c.Token, c.ReadToken, c.API.Operators = token, read, dlq.New(down{}, "s") })
	}
	both, full, readOnly := with(fixed("operate"), fixed("read")), with(fixed("operate"), nil), with(nil, fixed("read"))
	none, otherName := with(nil, nil), []string{"Host", "evil.example"}
	const passed = 0 // any answer that is not about tokens
	var open []string
	for _, op := range operations(t) {
		check := func(base, token string, want int, headers ...string) {
			t.Helper()
			if token != "" {
				headers = append(headers, "Authorization", "Bearer "+token)
			}
			code, body, header := send(t, op.method, base+op.path, "", headers...)
			refused := code == http.StatusUnauthorized || code == http.StatusForbidden
			switch {
			case want == passed && refused, want != passed && code != want, code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
				t.Errorf("%s %s with token %q %v answers %d, want %d: %s", op.method, op.path, token, headers, code, want, body)
			case refused && header.Get("Content-Type") != "application/problem+json":
				t.Errorf("%s %s: the refusal is %s", op.method, op.path, header.Get("Content-Type"))
			}
		}
		if op.open {
			open = append(open, op.path)
			check(both, "", passed)
			check(none, "", passed, otherName...)
			continue
		}
		reads := op.method == http.MethodGet
		ifReads := func(code, otherwise int) int {
			if reads {
				return code
			}
			return otherwise
		}
		check(both, "", 401)
		check(both, "wrong", 401)
		check(both, "read", ifReads(passed, 403))
		check(both, "operate", passed)
		check(full, "", 401)
		check(full, "read", 401)
		check(full, "operate", passed)
		check(readOnly, "", ifReads(401, 403))
		check(readOnly, "operate", ifReads(401, 403))
		check(readOnly, "read", ifReads(passed, 403))
		check(none, "", passed) // on loopback, as the configuration wants it
		check(none, "", 403, otherName...)
	}
	slices.Sort(open)
	if want := []string{"/healthz", "/metrics", "/readyz"}; !slices.Equal(open, want) {
		t.Errorf("without a token one can have %v, want %v", open, want)
	}
}

// A method that a route does not have needs a token, too: its answer says nothing without one.
func TestOtherMethodsAskForATokenToo(t *testing.T) {
	base := serve(t, func(c *Config) { c.Token, c.ReadToken = fixed("operate"), fixed("read") })
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
			if code, body, _ := send(t, method, base+path, ""); code != 401 {
				t.Errorf("%s %s answers %d without a token: %s", method, path, code, body)
			}
		}
	}
}
