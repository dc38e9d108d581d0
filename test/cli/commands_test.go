package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// From an empty database to a row that arrives, and back to a database in which nothing of the
// relay is left.
func TestInitRunTeardown(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.ok("init", "--outbox-table")
	r.ok("init", "--outbox-table")
	r.ok("init")
	relay := r.start()
	r.insert(2)
	eventually(t, func() string { return wantLines(relay, 2) })
	r.refused(1, "teardown --yes", r.slot, "active for", "cdc-relay/"+r.slot, "stop it first")
	r.refused(2, "teardown", "drops the slot", "--yes")
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}

	r.released()
	second := *r
	second.slot = r.slot + "_b"
	second.refused(2, "init", "cdc-relay init --no-backfill")
	second.ok("init", "--no-backfill")
	r.ok("teardown", "--yes")
	if n := left(r); n != "publications 1, schemas 1, slots 1" {
		t.Errorf("after the first of two: %s", n)
	}
	second.ok("teardown", "--yes")
	if n := left(r); n != "publications 0, schemas 0, slots 0" {
		t.Errorf("after the last: %s", n)
	}
	if n := ask[int](r, `SELECT count(*) FROM outbox`); n != 2 {
		t.Errorf("the outbox has %d rows, had 2", n)
	}
	r.ok("teardown", "--yes") // nothing is there
}

// left is what is in the database of any relay.
func left(r *rig) string {
	return ask[string](r, `SELECT 'publications ' || (SELECT count(*) FROM pg_publication) ||
		', schemas ' || (SELECT count(*) FROM pg_namespace WHERE nspname = 'cdc_relay') ||
		', slots ' || (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())`)
}

type finding struct{ Name, Level, Detail, Fix string }

func checked(t *testing.T, out string) []finding {
	t.Helper()
	var f []finding
	if err := json.Unmarshal([]byte(out), &f); err != nil || len(f) == 0 {
		t.Fatalf("check --json says %q: %v", out, err)
	}
	return f
}

// othersTransactions is a line about what other tests do on the same server.
const othersTransactions = "open transactions"

// check on a good setup has only ok lines; before init it warns of what the first start will
// create.
func TestCheckOfAGoodSetup(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', allow: {routing_key: order.*}}"
	for _, f := range checked(t, b.ok("check", "--json")) {
		if f.Name == othersTransactions || ofSuperuser(f) {
			continue
		}
		created := f.Name == "schema" || f.Name == "publication" || f.Name == "slot"
		if created != (f.Level == "warn") || created && f.Fix != "cdc-relay init" || f.Level == "fail" {
			t.Errorf("before init: %+v", f)
		}
	}
	if n := left(b.rig); n != "publications 0, schemas 0, slots 0" {
		t.Errorf("check has made %s", n)
	}
	b.ok("init")
	found := map[string]bool{}
	for _, f := range checked(t, b.ok("check", "--json")) {
		found[f.Name] = true
		if !ofSuperuser(f) && f.Name != othersTransactions && (f.Level != "ok" || f.Detail == "" || f.Fix != "") {
			t.Errorf("after init: %+v", f)
		}
		documented(t, f.Name)
	}
	for _, name := range []string{
		"postgres", "wal_level", "replication connection", "replication slots", "synchronous standby", "schema", "audit", "tables", "publication", "slot",
		"broker", `exchange "outbox.events"`,
	} {
		if !found[name] {
			t.Errorf("there is no line %q in %v", name, found)
		}
	}
	for line := range strings.Lines(b.ok("check")) {
		if !strings.HasPrefix(line, "ok    ") && !strings.HasPrefix(line, "warn  audit ") && !strings.HasPrefix(line, "warn  commit times ") && !strings.Contains(line, "fix: ALTER SYSTEM SET track_commit_timestamp") && !strings.Contains(line, "fix: let the relay log in as another role") &&
			!strings.HasPrefix(line, "warn  "+othersTransactions) && !strings.Contains(line, "fix: end them in their applications") {
			t.Errorf("the line for people is %q", line)
		}
	}
	b.overHTTP()
}

// Each thing that is wrong is one failed line with its fix, and exit 1; what is right beside it is
// still told. TestCheckNamesColumnsAndTypes and others of internal/replication have what check says
// of tables and publications.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	vhost := servers.SharedRabbitMQ(t).VHost(t)
	whole := newRig(t)
	whole.ok("init")
	for _, c := range []struct {
		name        string
		spoil       func(r *rig)
		line        string
		words, says []string
	}{
		{"PostgreSQL", func(r *rig) { r.db = through(r.db, "127.0.0.1:1") }, "postgres", []string{"connection refused"}, nil},
		{"broker", func(r *rig) { r.sink = "  rabbitmq: {url: 'amqp://127.0.0.1:1/'}" }, "broker", []string{"connection refused"}, []string{"sink.rabbitmq.url"}},
		{"login", func(r *rig) { r.sink = "  rabbitmq: {url: '" + as(vhost, "guest", "mqsecret") + "'}" }, "broker", []string{"403"}, []string{"password"}},
		{"virtual host", func(r *rig) { r.sink = "  rabbitmq: {url: '" + vhost + "x'}" }, "broker", nil, []string{"virtual host"}},
		{"exchange", func(r *rig) { r.sink = "  rabbitmq: {url: '" + vhost + "', exchange: nowhere}" }, `exchange "nowhere"`, []string{"404"}, []string{"declare: true"}},
		{"slot", func(r *rig) { r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot) }, "slot", []string{"no longer exists"}, []string{"cdc-relay recover", "cdc-relay accept "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := *whole
			r.t = t
			c.spoil(&r)
			res := r.command("check", "--json")
			hidden(t, res.Stdout+res.Stderr)
			refusal(t, res, 1, "1 of ", "checks failed")
			for _, f := range checked(t, res.Stdout) {
				switch {
				case f.Name != c.line:
					if f.Level == "fail" {
						t.Errorf("also failed: %+v", f)
					}
				case f.Level != "fail" || !hasAll(f.Detail, c.words) || !hasAll(f.Fix, c.says):
					t.Errorf("the line is %+v", f)
				}
			}
			if c.line == "slot" { // the same for people
				if res := r.command("check"); res.Code != 1 || !strings.Contains(res.Stdout, "fail  "+c.line) || !strings.Contains(res.Stdout, "fix: ") {
					t.Errorf("exit %d, %s", res.Code, res.Stdout)
				}
			}
		})
	}
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// health is for the health check of an image: it asks the relay alone.
func TestHealth(t *testing.T) {
	look := aRelay.join(t)
	t.Parallel()
	r := look()
	r.refused(1, "health --admin 127.0.0.1:1", "no relay answers", "nothing listens on 127.0.0.1:1")
	for _, admin := range []string{r.relay.Admin(), strings.TrimPrefix(r.relay.Admin(), "http://")} {
		if out := r.ok("health", "--admin", admin); out != "healthy\n" {
			t.Errorf("it says %q", out)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	r.refused(1, "health --admin "+other.URL, "another program than a relay answers")
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"healthy": false, "stuck": ["the reporter has been stuck for 16s (bound 15s)"]}`)
	}))
	t.Cleanup(stuck.Close)
	r.refused(1, "health --admin "+stuck.URL, "503", "the reporter has been stuck")
}

// status asks the relay; without one it shows what the database knows, and is 0 only when somebody
// holds the slot.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	res := r.command("status", "--admin", "127.0.0.1:1")
	if res.Code != 1 || !hasAll(res.Stdout, []string{"does not answer", "nothing listens on 127.0.0.1:1", r.slot, "does not exist"}) {
		t.Errorf("before the first start: exit %d, %s%s", res.Code, res.Stdout, res.Stderr)
	}
	relay := r.start()
	r.insert(2)
	eventually(t, func() string { return wantLines(relay, 2) })
	eventually(t, func() string {
		if out := r.ok("status", "--admin", strings.TrimPrefix(relay.Admin(), "http://")); !hasAll(out, []string{"state      ", "relay      leader", r.slot, "broker     up", "published  2 events"}) {
			return out
		}
		return ""
	})
	var s status
	must(t, json.Unmarshal([]byte(r.ok("status", "--json", "--admin", relay.Admin())), &s))
	if s.Role != "leader" || s.Slot.Name != r.slot || s.Totals.Published != 2 {
		t.Errorf("--json says %+v", s)
	}

	out := r.ok("status", "--admin", "127.0.0.1:1") // the slot is held, so it is running
	if !hasAll(out, []string{"does not answer", "held by cdc-relay/" + r.slot, " behind, retains ", "WAL reserved", "last leader"}) {
		t.Errorf("with a wrong --admin: %s", out)
	}
	relay.Stop(t)
	r.released()
	res = r.command("status", "--admin", "127.0.0.1:1", "--json")
	var v struct {
		AnsweredBy string `json:"answered_by"`
		Slot       *struct {
			Active   bool
			Retained int64 `json:"retained_bytes"`
		}
		Relay string `json:"relay_error"`
	}
	if err := json.Unmarshal([]byte(res.Stdout), &v); err != nil || res.Code != 1 || v.AnsweredBy != "database" || v.Slot == nil || v.Slot.Active || v.Slot.Retained <= 0 || !strings.Contains(v.Relay, "does not answer") {
		t.Errorf("without a relay: exit %d, %s%s", res.Code, res.Stdout, res.Stderr)
	}
	r.db = through(r.db, "127.0.0.1:1")
	r.refused(1, "status --admin 127.0.0.1:2", "no relay answers", "the database does not either")
}

// With tokens the status is for those who have one; what answers without being a relay is not taken
// for one.
func TestStatusWithTokens(t *testing.T) {
	look := aRelay.join(t)
	t.Parallel()
	r := look()
	relay, both := r.relay, r.admin
	for path, want := range map[string]int{"/api/v1/status": 401, "/healthz": 200, "/readyz": 200, "/metrics": 200} {
		if code, body, err := relay.GetByNetwork(await.Context(t), path); err != nil || code != want {
			t.Errorf("without a token %s answers %d, want %d: %s, %v", path, code, want, body, err)
		}
	}
	for tokens, told := range map[string]bool{
		both: true,
		", tokens: [{name: a, role: operate, value: toksecret-operate}]":                                                true,
		", tokens: [{name: a, role: read, value: toksecret-to-read}]":                                                   true,
		", tokens: [{name: a, role: read, value: '${file:/no/such}'}, {name: b, role: read, value: toksecret-to-read}]": true,
		", tokens: [{name: a, role: read, value: toksecret-is-wrong}]":                                                  false,
	} {
		r.admin = tokens
		out := r.ok("status", "--admin", relay.Admin())
		if strings.Contains(out, "wants a token") == told {
			t.Errorf("with %q: %s", tokens, out)
		}
		hidden(t, out)
	}
	hidden(t, relay.Log())

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	t.Cleanup(other.Close)
	r.refused(1, "status --admin "+other.URL, "another program than a relay answers")
	r.refused(1, "status --watch --admin "+other.URL, "another program than a relay answers")
}
