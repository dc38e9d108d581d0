package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
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
			if header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: a browser may guess what the answer is", op.method, op.path)
			}
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

// The names are a contract with scripts: this list is only ever added to.
func TestStatusNames(t *testing.T) {
	base := serve(t, func(c *Config) {
		c.Snapshot = func() ops.Snapshot {
			return ops.Snapshot{Phase: ops.Waiting, Why: "refused", Slot: ops.Slot{Name: "s"}, Guard: &ops.Guard{}}
		}
	})
	var body map[string]any
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/status", asAnn, &body); code != 200 {
		t.Fatalf("status answers %d", code)
	}
	var names []string
	for name, value := range body {
		names = append(names, name)
		if section, ok := value.(map[string]any); ok {
			for inner := range section {
				names = append(names, name+"."+inner)
			}
		}
	}
	slices.Sort(names)
	want := []string{
		"answered_by", "as_of", "as_of.dead_letters", "as_of.deferred", "as_of.open_gaps", "as_of.slot", "as_of.unheld_slots", "as_of.unsent_rows",
		"broker", "broker.channels", "broker.connections", "broker.down_since", "broker.kind", "broker.paused", "broker.paused_total", "broker.pending_confirms", "broker.up", "broker.was_up", "broker.why",
		"dead_letters", "dead_letters.counted_at", "dead_letters.oldest", "dead_letters.open",
		"in_flight", "in_flight.bytes", "in_flight.events", "in_flight.oldest_unsettled", "in_flight.settled_lsn", "leader", "log", "now",
		"guard", "guard.active", "guard.full", "guard.deferred", "guard.left_bytes", "open_gaps",
		"deferred", "deferred.counted_at", "deferred.events", "deferred.feeding", "deferred.waiting_keys", "deferred.oldest", "deferred.queued", "deferred.refused", "deferred.refused_total", "deferred.table_bytes",
		"retention", "retention.behind_seconds", "retention.deleted", "retention.error", "retention.held_by", "retention.last_pass", "retention.mode",
		"rates", "rates.latency_p50_seconds", "rates.latency_p99_seconds", "rates.deferred_per_second", "rates.published_per_second", "rates.retries_per_second", "role",
		"slot", "slot.active", "slot.checked_at", "slot.confirmed_flush_lsn", "slot.current_wal_lsn", "slot.lag_bytes", "slot.lag_seconds", "slot.name",
		"slot.restart_lsn", "slot.retained_bytes", "slot.safe_wal_bytes", "slot.safe_wal_seconds", "slot.spilled_bytes", "slot.wal_status",
		"standbys", "started_at", "state", "totals", "totals.dead", "totals.failed", "totals.last_confirm", "totals.deferred", "totals.published", "totals.retries", "totals.broker_reconnects", "totals.stream_reconnects",
		"unheld_slots", "unreported_confirmed", "unsent_rows", "version", "waiting_for_standby", "wal_held_by", "why",
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
	if body["state"] != ops.StateWaiting || body["why"] != "refused" || body["version"] != "v1" {
		t.Errorf("got %v", body)
	}
}

func TestSlotsOfTheAPI(t *testing.T) {
	snapshot := opstest.BusyWithOtherSlots()
	now := time.Now()
	snapshot.OldestUnsettled, snapshot.Slot.Checked = now.Add(-time.Hour), now
	for i := range snapshot.OtherSlots[:2] {
		o := &snapshot.OtherSlots[i]
		since := o.Checked.Sub(o.BehindSince)
		o.Checked = now
		if !o.BehindSince.IsZero() {
			o.BehindSince = now.Add(-since)
		}
	}
	base := serve(t, func(c *Config) { c.Snapshot = func() ops.Snapshot { return snapshot } })
	var got ops.Slots
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/slots", asAnn, &got); code != http.StatusOK {
		t.Fatalf("it answers %d", code)
	}
	var said []string
	for _, i := range got.Items {
		lag := "?"
		if i.LagSeconds != nil {
			lag = fmt.Sprint(int(*i.LagSeconds) / 10 * 10)
		}
		said = append(said, fmt.Sprintf("%s own=%t %s %s lag=%d/%s by %s retained=%d active=%t %s %s", i.Name, i.Own, i.Database, i.Plugin, i.LagBytes, lag, i.LagFrom, i.RetainedBytes, i.Active, i.WALStatus, i.ConfirmedFlushLSN))
	}
	want := []string{
		"cdc_relay own=true shop pgoutput lag=2048/3600 by commits retained=4096 active=true reserved 0/1000",
		"debezium own=false shop pgoutput lag=1024/90 by wal retained=5120 active=false extended 0/1400",
		"other_relay own=false   lag=0/0 by wal retained=0 active=true reserved 0/1800",
	}
	if !slices.Equal(said, want) || got.Total != 124 {
		t.Errorf("of %d slots it shows\n%s\nwant\n%s", got.Total, strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	snapshot.Phase, snapshot.OtherSlots, snapshot.OtherTotal = ops.Standby, nil, 0
	got = ops.Slots{}
	if ask(t, http.MethodGet, base+"/api/v1/slots", asAnn, &got); len(got.Items) != 1 || got.Items[0].LagSeconds != nil || got.Total != 1 {
		t.Errorf("on a standby it shows %+v", got)
	}
	var status ops.Status
	if ask(t, http.MethodGet, base+"/api/v1/status", asAnn, &status); status.State != ops.StateStandby || status.Slot.LagSeconds != nil {
		t.Errorf("on a standby the status is %s, lag %v", status.State, status.Slot.LagSeconds)
	}
}
