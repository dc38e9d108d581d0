package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// What is wrong in a request of the console is answered with a sentence, before the database is
// asked.
func TestConsoleRequestsThatAreNotUnderstood(t *testing.T) {
	var counts error
	rows, table := int64(1), ""
	base := serve(t, func(c *Config) {
		c.API.Operators = dlq.New(down{}, "s")
		c.API.CountResend = func(_ context.Context, r *dlq.Resend, _ bool) (Counted, error) {
			table = r.Table
			return Counted{Rows: rows, Order: "commit timestamps", Notes: []string{}}, counts
		}
		c.Snapshot = func() ops.Snapshot { return ops.Snapshot{Sink: ops.Sink{Kind: "rabbitmq"}} }
	})
	post := func(path, body string, code int, want string) {
		t.Helper()
		if got, answer, _ := send(t, http.MethodPost, base+path, body); got != code || !strings.Contains(answer, want) {
			t.Errorf("%s %.60s answers %d %s, want %d: %s", path, body, got, answer, code, want)
		}
	}
	const resend, ids = "/api/v1/resend", `"ids": ["a"]`
	for body, want := range map[string]string{
		"": "which rows?", "{}": "which rows?", `{"ids": []}`: "which rows?", `{` + ids + `, "gap": 3}`: "which rows?", `{"gap": -1}`: "which rows?", `{"unsent": true, "key": "k"}`: "unknown field",
		`{` + ids + `, "none": true, "reason": "x"}`: "none needs gap", `{"gap": 3, "none": true}`: "none needs gap", `{"gap": 3, "none": true, "reason": "x", "table": "public.t"}`: "leave out table", `{"table": "public.t"}`: "which rows?",
		`{"ids": ["a", ""]}`: "ids has an empty one", `{"ids": ["a"` + strings.Repeat(`, "a"`, 1000) + `]}`: "ids are 1001", `{` + ids + `, "rate": -1}`: "rate is -1",
		`{` + ids + `, "order_by": "a", "unordered": true}`: "exclude each other", `{` + ids + `, "where": "true"}`: "unknown field", `{` + ids + `, "topic": "t"}`: "topic is Kafka's",
		`{` + ids + `, "reason": "` + strings.Repeat("r", 1001) + `"}`: "reason has 1001 characters",
	} {
		post(resend, body, 400, want)
	}
	post(resend, `{`+ids+`, "dry_run": true}`, 200, `{"dry_run":true,"matched":1,"order":"commit timestamps","rows_without_transaction":0,"notes":[]}`)
	if post(resend, `{`+ids+`, "dry_run": true, "table": "public.t"}`, 200, `"matched":1`); table != "public.t" {
		t.Errorf("the rows of table %q are counted", table)
	}
	post(resend, `{`+ids+`}`, 503, "no database here")
	post(resend, `{"gap": 3, "none": true, "reason": "by hand"}`, 503, "no database here")
	rows = 0
	post(resend, `{`+ids+`}`, 200, `{"matched":0}`)
	counts = &event.Stop{Code: event.ExitUsage, What: "order unknown", Fix: "name a column"}
	post(resend, `{`+ids+`}`, 400, "order unknown; name a column")
	counts = errors.New("no table")
	post(resend, `{`+ids+`}`, 503, "no table")

	post("/api/v1/destinations/%21/retry", "", 400, "the id is none of")
	post("/api/v1/destinations/b3JkZXJz/retry", `{"all": true}`, 400, "unknown field")
	post("/api/v1/destinations/b3JkZXJz/retry", "", 503, "no database here")
	post("/api/v1/dead-letters/redact", `{"rate": 1}`, 400, "which?")
	post("/api/v1/deferred/retry", `{"state": "open"}`, 400, "state is not asked of deferred rows")
	post("/api/v1/deferred/dead-letter", `{"all": true}`, 503, "no database here")
	for query, want := range map[string]int{"": 503, "?limit=1": 503, "?limit=100": 503, "?limit=0": 400, "?limit=101": 400, "?limit=x": 400, "?limit=1&limit=1": 400, "?n=1": 400} {
		if code, body, _ := send(t, http.MethodGet, base+"/api/v1/jobs"+query, ""); code != want {
			t.Errorf("jobs%s answers %d %s, want %d", query, code, body, want)
		}
	}
	for query, want := range map[string]int{
		"": 503, "?who=ann&action=replay&n=0&from=2026-11-20T00:00:00Z&to=2026-11-21T00:00:00Z&limit=7&cursor=9": 503,
		"?who=": 400, "?who=a&who=b": 400, "?n=x": 400, "?limit=0": 400, "?limit=1001": 400, "?limit=x": 400, "?cursor=x": 400, "?from=today": 400, "?why=x": 400,
	} {
		if code, body, _ := send(t, http.MethodGet, base+"/api/v1/audit"+query, ""); code != want {
			t.Errorf("audit%s answers %d %s, want %d", query, code, body, want)
		}
	}
}

// Who may only read changes nothing, and each answer names the role.
func TestRolesOfTheConsole(t *testing.T) {
	base := serve(t, func(c *Config) {
		c.API.Operators = dlq.New(down{}, "s")
		c.API.Config = func() any { return []string{"a key"} }
		c.API.Outboxes = []dlq.Outbox{{Schema: "public", Table: "orders"}, {Schema: "public", Table: "bills"}}
	})
	for _, path := range []string{"/api/v1/resend", "/api/v1/destinations/b3JkZXJz/retry", "/api/v1/dead-letters/redact", "/api/v1/deferred/retry", "/api/v1/deferred/dead-letter"} {
		if code, _, header := send(t, http.MethodPost, base+path, `{"all": true}`, "Authorization", asAnn); code != 403 || header.Get("Cdc-Relay-Role") != "" {
			t.Errorf("%s answers %d to who may only read", path, code)
		}
	}
	for who, want := range map[string]string{asAnn: "read", asOps: "operate"} {
		if _, _, header := send(t, http.MethodGet, base+"/api/v1/status", "", "Authorization", who); header.Get("Cdc-Relay-Role") != want {
			t.Errorf("the role of %s is %q", who, header.Get("Cdc-Relay-Role"))
		}
	}
	for path, want := range map[string]string{"/api/v1/config": `{"items":["a key"],"outbox_tables":["public.orders","public.bills"]}`, "/api/v1/history": `"every_seconds":10`} {
		if code, body, _ := send(t, http.MethodGet, base+path, "", "Authorization", asAnn); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s answers %d %s", path, code, body)
		}
		if code, _, _ := send(t, http.MethodGet, base+path, "", "Authorization", "Bearer x"); code != 401 {
			t.Errorf("%s answers %d to a wrong token", path, code)
		}
	}
}

// empty is a database without rows.
type empty struct{ down }

func (empty) Query(context.Context, string, ...any) (pgx.Rows, error) { return noRows{}, nil }

type noRows struct{ pgx.Rows }

func (noRows) Next() bool { return false }
func (noRows) Close()     {}
func (noRows) Err() error { return nil }

// A paused destination has an id for paths, whatever is in its name.
func TestDestinationsOfTheAPI(t *testing.T) {
	base := serve(t, func(c *Config) {
		c.API.Operators = dlq.New(empty{}, "s")
		c.Snapshot = func() ops.Snapshot {
			return ops.Snapshot{PausedTotal: 30, Paused: []ops.Paused{{Destination: `exchange "a/..", routing key "b"`, Reason: "unroutable", Error: "312", Since: opstest.Noon}}}
		}
	})
	code, body, _ := send(t, http.MethodGet, base+"/api/v1/destinations", "")
	if code != 200 || !strings.Contains(body, `"items":[{"id":"YS8uLi9i","destination":"exchange \"a/..\", routing key \"b\"",`) || !strings.Contains(body, `"holding":[]`) || !strings.Contains(body, `"total":30`) {
		t.Errorf("it answers %d %s", code, body)
	}
}

// The console's pages are open, on the admin port alone, and read only; the API beside them is not.
func TestPagesOfTheConsole(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.URL.Path) })
	var probes string
	base := serve(t, func(c *Config) { c.Console, c.Socket, c.MetricsListen = pages, socket, "127.0.0.1:0" },
		func(s *Server) { probes = "http://" + s.metrics.Addr().String() })
	for path, want := range map[string]string{
		"GET /": "page /", "GET /console/app.js": "page /console/app.js", "GET /console": "page /console", "GET /other": "there is no /other", "GET /api/v1/status": "Authorization", "GET /healthz": "healthy",
		"POST /": "there is no /", "POST /console/": "there is no /console/",
	} {
		method, path, _ := strings.Cut(path, " ")
		if _, body, _ := send(t, method, base+path, "", "Authorization", ""); !strings.Contains(body, want) {
			t.Errorf("%s %s answers %s, want %s", method, path, body, want)
		}
	}
	over := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for from, client := range map[string]*http.Client{"http://relay": over, probes: http.DefaultClient} {
		var code int
		await.Until(t, "an answer", func() bool {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from+"/console/", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(request)
			if err != nil {
				return false
			}
			code = answer.StatusCode
			return answer.Body.Close() == nil
		})
		if code != http.StatusNotFound {
			t.Errorf("%s answers %d", from, code)
		}
	}
}

// The history is filled by the server itself, of what it says of itself.
func TestHistoryOfTheServer(t *testing.T) {
	base := serve(t, func(*Config) {}, func(s *Server) { s.lookEvery = time.Millisecond })
	await.Until(t, "a point and the first marks", func() bool {
		var h struct {
			Points map[string][]*float64
			Marks  []ops.Mark
		}
		_, body, _ := send(t, http.MethodGet, base+"/api/v1/history", "", "Authorization", asAnn)
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return len(h.Points["at"]) > 0 && len(h.Marks) > 0 && h.Marks[0].Text == "The relay started, version v1."
	})
}
