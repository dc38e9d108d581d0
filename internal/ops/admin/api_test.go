package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
)

// The document describes every path and method that is answered, and no other.
func TestOpenAPI(t *testing.T) {
	base := serve(t, func(*Config) {})
	var doc struct {
		Paths map[string]map[string]any
	}
	if code, header := ask(t, http.MethodGet, base+"/api/v1/openapi.json", asAnn, &doc); code != 200 || header.Get("Content-Type") != "application/json" {
		t.Fatalf("it answers %d, %s", code, header.Get("Content-Type"))
	}
	described := map[string][]string{}
	for path, item := range doc.Paths {
		for method, operation := range item {
			if method == "parameters" {
				continue
			}
			described[path] = append(described[path], strings.ToUpper(method))
			if answers := fmt.Sprint(operation); strings.HasPrefix(path, "/api/") && !strings.Contains(answers, "default:map[$ref:#/components/responses/Problem]") {
				t.Errorf("%s %s: a token that is refused is not described: %s", method, path, answers)
			}
		}
	}
	s := &Server{cfg: Config{Metrics: metrics.New("", "", "")}}
	for path, by := range s.paths() {
		want, got := slices.Sorted(maps.Keys(by)), described[path]
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s is described with %v, want %v", path, got, want)
		}
		delete(described, path)
	}
	for path := range described {
		t.Errorf("%s is described, and does not exist", path)
	}
}

// What is described of a job, an event and the like is what they have.
func TestSchemas(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var fields func(of reflect.Type) (names []string)
	fields = func(of reflect.Type) (names []string) {
		for field := range of.Fields() {
			switch name, _, _ := strings.Cut(field.Tag.Get("json"), ","); {
			case field.Anonymous && name == "":
				names = append(names, fields(field.Type)...)
			case field.IsExported() && name != "-":
				names = append(names, name)
			}
		}
		return names
	}
	for name, of := range map[string]any{
		"Job": dlq.Job{}, "Event": dlq.Event{}, "Row": dlq.Row{}, "Audit": dlq.AuditPage{}, "Groups": dlq.Groups{}, "Resend": resendBody{},
	} {
		got, want := slices.Sorted(maps.Keys(doc.Components.Schemas[name].Properties)), fields(reflect.TypeOf(of))
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s is described with\n%s\nand has\n%s", name, got, want)
		}
	}
}

// down is a database that does not answer: a request that reaches it has passed the guard.
type down struct{ dlq.Querier }

var errDown = errors.New("no database here")

func (down) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errDown }

func (down) QueryRow(context.Context, string, ...any) pgx.Row { return failing{} }

func (down) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errDown
}

// hanging is a database that answers, as down does, when go_ is closed. Lists are answered at once
// unless reads hang, too.
type hanging struct {
	down
	begun, go_ chan struct{}
	reads      bool
}

func (h hanging) wait(ctx context.Context) {
	h.begun <- struct{}{}
	select {
	case <-h.go_:
	case <-ctx.Done():
	}
}

func (h hanging) Query(ctx context.Context, _ string, _ ...any) (pgx.Rows, error) {
	if h.reads {
		h.wait(ctx)
	}
	return nil, errDown
}

func (h hanging) QueryRow(ctx context.Context, _ string, _ ...any) pgx.Row {
	h.wait(ctx)
	return failing{}
}

type failing struct{}

func (failing) Scan(...any) error { return errDown }

// send is a request of asOps with a body, as JSON, and headers. Authorization among them replaces
// the token, "" sends none.
func send(t *testing.T, method, url, body string, headers ...string) (code int, answer string, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", asOps)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.Header.Get("Content-Type") == "text/event-stream" { // it has no end
		return got.StatusCode, "", got.Header
	}
	content, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(content), got.Header
}

// A wrong request is answered with a problem of its own, before the database is queried.
func TestRequestsThatAreNotUnderstood(t *testing.T) {
	base := serve(t, func(c *Config) {
		c.API.Operators = dlq.New(down{}, "s")
		c.Snapshot = func() ops.Snapshot { return ops.Snapshot{Sink: ops.Sink{Kind: "rabbitmq"}} }
	})
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/api/v1/dead-letters?nonsense=1", "", 400, "the parameter nonsense is not known"},
		{"GET", "/api/v1/dead-letters?key=a&key=b", "", 400, "the parameter key is given twice"},
		{"GET", "/api/v1/dead-letters?from=yesterday", "", 400, "from is \"yesterday\""},
		{"GET", "/api/v1/dead-letters?limit=x", "", 400, "the parameter limit"},
		{"GET", "/api/v1/dead-letters?limit=1001", "", 400, "limit is 1001, want 1 to 1000"},
		{"GET", "/api/v1/dead-letters?cursor=x", "", 400, "cursor is \"x\""},
		{"GET", "/api/v1/dead-letters?class=fatal", "", 400, "class is \"fatal\""},
		{"GET", "/api/v1/dead-letters?key=a&key_of=1", "", 400, "key_of excludes key"},
		{"GET", "/api/v1/dead-letters?class=permanent&destination=", "", 400, "destination is empty; leave it out"},
		{"POST", "/api/v1/dead-letters/discard", `{"all": true, "state": ""}`, 400, "state is empty; leave it out"},
		{"POST", "/api/v1/dead-letters/purge", `{"key": "a", "key_of": 0}`, 400, "key_of excludes key"},
		{"GET", "/api/v1/deferred?state=open", "", 400, "state is not asked of deferred rows"},
		{"GET", "/api/v1/dead-letters/replay", "", 405, "takes POST"},
		{"GET", "/api/v1/dead-letters/x", "", 400, `there is no number "x"`},
		{"GET", "/api/v1/jobs/0", "", 400, `there is no number "0"`},
		{"PUT", "/api/v1/jobs/1", "", 405, "takes DELETE, GET, HEAD"},
		{"POST", "/api/v1/dead-letters/1/purge", "", 404, "there is no /api"},
		{"POST", "/api/v1/dead-letters/1/replay", "{", 400, "the body: "},
		{"POST", "/api/v1/dead-letters/1/replay", "[]", 400, "the body: "},
		{"POST", "/api/v1/dead-letters/1/replay", "{} {}", 400, "more than one"},
		{"POST", "/api/v1/dead-letters/1/replay", `{"rate": 1}`, 400, "unknown field"},
		{"POST", "/api/v1/dead-letters/1/replay", `{"topic": "t"}`, 400, "topic is Kafka's"},
		{"POST", "/api/v1/dead-letters/1/discard", `{"exchange": "x"}`, 400, "are for a replay"},
		{"POST", "/api/v1/dead-letters/replay", "", 400, "which?"},
		{"POST", "/api/v1/dead-letters/replay", `{"rate": 5}`, 400, "which?"},
		{"POST", "/api/v1/dead-letters/replay", `{"all": true, "rate": -5}`, 400, "rate is -5"},
		{"POST", "/api/v1/dead-letters/replay", `{"state": "discarded"}`, 400, "only open dead letters"},
		{"POST", "/api/v1/dead-letters/purge", `{"all": true, "routing_key": "x"}`, 400, "are for a replay"},
		{"POST", "/api/v1/dead-letters/purge", `{"from": "now"}`, 400, "the body: "},
		{"POST", "/api/v1/dead-letters/purge", strings.Repeat(" ", maxBody) + "{}", 400, "the body: "},
		{"GET", "/api/v1/dead-letters", "", 503, "no database here"},
		{"POST", "/api/v1/deferred/1/retry", "", 503, "no database here"},
		{"POST", "/api/v1/dead-letters/replay", `{"all": true, "exchange": "x", "routing_key": ""}`, 503, "no database here"},
	} {
		code, body, header := send(t, c.method, base+c.path, c.body)
		var p problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || code != c.code || p.Status != c.code || !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s %s %.40s answers %d %s, want %d: %s", c.method, c.path, c.body, code, body, c.code, c.want)
		}
		if got := header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s %s: content type %q", c.method, c.path, got)
		}
	}
	none := serve(t, func(*Config) {})
	if code, body, _ := send(t, http.MethodGet, none+"/api/v1/deferred", ""); code != 503 {
		t.Errorf("without a database it answers %d %s", code, body)
	}
}

func TestQueries(t *testing.T) {
	values, err := url.ParseQuery("id=&key=a%00b&aggregate=x&type=y&destination=d&class=permanent&error=e&state=open&from=2026-11-20T12:00:00Z&cursor=5-1&limit=7")
	if err != nil {
		t.Fatal(err)
	}
	q, err := readQuery(values)
	if err != nil {
		t.Fatal(err)
	}
	f, err := q.Filter(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%q %q %q %q %s %s %s %s %s %t %s %d", f.ID, f.Key, f.Aggregate, f.Type, f.Destination, f.Class, f.Error, f.State, f.From, f.To.IsZero(), q.Cursor, q.Limit)
	if want := `"" "a\x00b" "x" "y" d permanent e open 2026-11-20 12:00:00 +0000 UTC true 5-1 7`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if q, err := readQuery(nil); err != nil || q.Limit != defaultLimit || q.FilterInput != (dlq.FilterInput{}) {
		t.Errorf("nothing is %+v, %v", q, err)
	}
}

// What curl prints raw is obeyed by no terminal, whatever row, broker, database or caller it is
// of; a program reads the same.
func TestNoTerminalObeysAnAnswer(t *testing.T) {
	snapshot := ops.Snapshot{}
	sentinel.FillWithAttack(&snapshot)
	attack := errors.New(sentinel.TerminalAttack)
	base := serve(t, func(c *Config) {
		c.Snapshot = func() ops.Snapshot { return snapshot }
		c.API.Operators = dlq.New(attacking{err: attack}, "s")
		c.API.Check = func(context.Context) (any, error) { return nil, attack }
	})
	for _, path := range []string{
		"/readyz", "/api/v1/status", "/api/v1/slots", "/api/v1/check", "/api/v1/dead-letters", "/api/v1/events/1", "/api/v1/" + url.PathEscape(sentinel.TerminalAttack),
		"/api/v1/dead-letters?limit=" + url.QueryEscape(sentinel.TerminalAttack), "/" + url.PathEscape(sentinel.TerminalAttack),
	} {
		_, answer, _ := send(t, http.MethodGet, base+path, "")
		sentinel.CheckPrintedLines(t, path, answer)
	}
	var status ops.Status
	if ask(t, http.MethodGet, base+"/api/v1/status", asAnn, &status); status.Why != strings.ToValidUTF8(snapshot.Why, "\ufffd") {
		t.Errorf("a program reads %q, want %q", status.Why, snapshot.Why)
	}
}

// attacking is a database whose errors are an attack.
type attacking struct {
	down
	err error
}

func (a attacking) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, a.err }

func (a attacking) QueryRow(context.Context, string, ...any) pgx.Row { return attackingRow(a) }

type attackingRow attacking

func (a attackingRow) Scan(...any) error { return a.err }

// One check runs at a time, and its findings are shared for ten seconds. One that fails is reported
// and not kept. One that hangs is bounded, and who waits too long for its turn gets an error: both
// bounds together are within that of an answer.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran, fails, hangs := 0, false, false
		a := newAPI(&Server{cfg: Config{API: API{Check: func(ctx context.Context) (any, error) {
			ran++
			switch {
			case hangs:
				<-ctx.Done()
				return nil, ctx.Err()
			case fails:
				return nil, errors.New("no configuration")
			}
			<-time.After(time.Second)
			return []string{"well"}, nil
		}}}})
		get := func(code, checks int) {
			t.Helper()
			w := httptest.NewRecorder()
			a.check(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/check", nil))
			if w.Code != code || ran != checks || code == 200 && !strings.Contains(w.Body.String(), `"findings":["well"]`) {
				t.Errorf("it answers %d %s after %d checks, want %d after %d", w.Code, w.Body, ran, code, checks)
			}
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { get(200, 1) })
		}
		all.Wait()
		<-time.After(checkFresh)
		fails = true
		get(503, 2)
		fails = false
		get(200, 3)
		<-time.After(checkFresh)
		hangs = true
		began := time.Now()
		all.Go(func() { get(503, 4) })
		synctest.Wait()
		get(503, 4)
		if waited := time.Since(began); waited != checkTurn {
			t.Errorf("it waited %s for its turn", waited)
		}
		all.Wait()
		if took := time.Since(began); took != checkBound || checkTurn+checkBound+3*time.Second >= writeBound {
			t.Errorf("it took %s, and an answer may take %s", took, writeBound)
		}
	})
	base := serve(t, func(*Config) {})
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/check", asAnn, nil); code != 503 {
		t.Errorf("without anything to check it answers %d", code)
	}
}
