package admin

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// serve runs a server on a free port until the test ends, and gives its address.
func serve(t *testing.T, change func(*Config), started ...func(*Server)) (base string) {
	t.Helper()
	cfg := Config{
		Listen: "127.0.0.1:0", Version: "v1", StartedAt: opstest.Noon, Metrics: metrics.New("v1", "", ""),
		Snapshot: opstest.Busy, Log: zap.NewNop(), Tokens: []Token{fixed("ann", "read", false), fixed("ops", "operate", true)},
	}
	change(&cfg)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.socketEvery = time.Millisecond
	for _, look := range started {
		look(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returns %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + s.Addr()
}

// ask sends a request and decodes the JSON of the answer into body.
func ask(t *testing.T, method, url, token string, body any) (code int, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		if err := json.Unmarshal(content, body); err != nil {
			t.Fatalf("%s %s answers %q: %v", method, url, content, err)
		}
	}
	return answer.StatusCode, answer.Header
}

// asOps and asAnn are who may change something, and who only reads, at a server that serve runs.
const (
	asOps = "Bearer operate"
	asAnn = "Bearer read"
)

func fixed(name, value string, operate bool) Token {
	return Token{Name: name, Operate: operate, Read: func() (string, error) { return value, nil }}
}

func TestRunThatIsStoppedAtOnceReleasesThePort(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0", Metrics: metrics.New("", "", ""), Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run returns %v", err)
	}
	again, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	_ = again.Close()
}

// A client that never finishes its request does not keep Run from returning.
func TestRunEndsBesideASlowClient(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0", Metrics: metrics.New("", "", ""), Snapshot: opstest.Busy, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestProblems(t *testing.T) {
	base := serve(t, func(*Config) {})
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, "/", 404},
		{http.MethodGet, "/api/v1/nothing", 404},
		{http.MethodGet, "/metrics/x", 404},
		{http.MethodPost, "/api/v1/status", 405},
		{http.MethodDelete, "/healthz", 405},
		{http.MethodGet, "/readyz?role=standby", 400},
	} {
		var body problem
		code, header := ask(t, c.method, base+c.path, asOps, &body)
		if code != c.code || body.Status != c.code || body.Type != "about:blank" || body.Title != http.StatusText(c.code) || body.Detail == "" {
			t.Errorf("%s %s answers %d with %+v, want %d", c.method, c.path, code, body, c.code)
		}
		if got := header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s %s: content type %q", c.method, c.path, got)
		}
		if c.code == 405 && header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, header.Get("Allow"))
		}
	}
}

func TestHealthz(t *testing.T) {
	began := time.Now()
	fine := ops.NewHeartbeat("reporter", time.Hour, func() time.Time { return began })
	var since time.Time
	stuck := ops.NewHeartbeat("reader", time.Minute, func() time.Time { return since })
	base := serve(t, func(c *Config) { c.Heartbeats = []*ops.Heartbeat{fine, stuck} })
	var body ops.Health
	if code, _ := ask(t, http.MethodGet, base+"/healthz", asAnn, &body); code != 200 || !body.Healthy || len(body.Stuck) != 0 {
		t.Errorf("a loop that does not run is not stuck: %d %+v", code, body)
	}
	since = time.Now().Add(-2 * time.Minute)
	if code, _ := ask(t, http.MethodGet, base+"/healthz", asAnn, &body); code != 503 || body.Healthy || len(body.Stuck) != 1 || !strings.HasPrefix(body.Stuck[0], "reader has been stuck for 2m") {
		t.Errorf("a loop that ran and never beat is stuck: %d %+v", code, body)
	}
	stuck.Beat()
	if code, _ := ask(t, http.MethodGet, base+"/healthz", asAnn, &body); code != 200 || !body.Healthy {
		t.Errorf("a loop that beat is not stuck: %d %+v", code, body)
	}
}

func TestReadyz(t *testing.T) {
	with := func(change func(*ops.Snapshot)) ops.Snapshot {
		s := opstest.Busy()
		change(&s)
		return s
	}
	brokerDown := func(s *ops.Snapshot) { s.Sink = ops.Sink{Why: "connection refused"} }
	for _, c := range []struct {
		name             string
		snapshot         ops.Snapshot
		code, leaderCode int
		role             string
		reasons          string // of the plain question
	}{
		{"leader", opstest.Busy(), 200, 200, "leader", ""},
		{"leader, broker down", with(func(s *ops.Snapshot) { brokerDown(s); s.Sink.WasUp = true }), 503, 503, "leader", "broker down: connection refused"},
		{"leader that defers", with(func(s *ops.Snapshot) {
			s.Paused, s.RetryTable.Refused = []ops.Paused{{Destination: `exchange "x"`}}, []ops.RefusedRow{{ID: "e1"}}
		}), 200, 200, "leader", ""},
		{"standby", with(func(s *ops.Snapshot) { s.Phase, s.Why = ops.Standby, "slot is held by cdc-relay/a" }), 200, 503, "standby", ""},
		{"standby, broker down since", with(func(s *ops.Snapshot) { brokerDown(s); s.Phase, s.Sink.WasUp = ops.Standby, true }), 200, 503, "standby", ""},
		{"standby that never reached its broker", with(func(s *ops.Snapshot) { brokerDown(s); s.Phase = ops.Standby }), 503, 503, "standby", "broker not reached since the start: connection refused"},
		{"leader that never reached its broker", with(brokerDown), 503, 503, "leader", "broker down: connection refused"},
		{"waiting", with(func(s *ops.Snapshot) { s.Phase, s.Why = ops.Waiting, "connection refused" }), 503, 503, "none", "waiting for postgres: connection refused"},
		{"waiting, broker down", with(func(s *ops.Snapshot) { brokerDown(s); s.Phase = ops.Waiting }), 503, 503, "none", "waiting for postgres|broker down: connection refused"},
		{"starting", with(func(s *ops.Snapshot) { s.Phase = ops.Starting }), 503, 503, "none", "starting"},
		{"stopping", with(func(s *ops.Snapshot) { s.Phase = ops.Stopping }), 503, 503, "leader", "stopping"},
		{"stopped", with(func(s *ops.Snapshot) { brokerDown(s); s.Phase, s.Why = ops.Stopped, "slot is gone" }), 503, 503, "none", "stopped: slot is gone"},
		{"before the first phase", ops.Snapshot{Sink: ops.Sink{Up: true}}, 503, 503, "none", "starting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := serve(t, func(cfg *Config) { cfg.Snapshot = func() ops.Snapshot { return c.snapshot } })
			var body ops.Readiness
			code, _ := ask(t, http.MethodGet, base+"/readyz", asAnn, &body)
			if code != c.code || body.Ready != (c.code == 200) || body.Role != c.role || strings.Join(body.Reasons, "|") != c.reasons {
				t.Errorf("got %d %+v", code, body)
			}
			was := c.snapshot
			if body.PausedTotal != was.PausedTotal || body.DeferredEvents != was.RetryTable.Deferred || body.RefusedTotal != was.RetryTable.RefusedTotal ||
				!slices.Equal(body.Paused, was.Paused) || !slices.Equal(body.Refused, was.RetryTable.Refused) {
				t.Errorf("what is paused, deferred or refused is not named: %+v", body)
			}
			if code, _ := ask(t, http.MethodGet, base+"/readyz?role=leader", asAnn, &body); code != c.leaderCode {
				t.Errorf("role=leader answers %d %+v, want %d", code, body, c.leaderCode)
			}
		})
	}
}

// full is a listener whose first Accept finds the kernel short of memory.
type full struct {
	net.Listener
	failed chan struct{} // one place
}

func (f full) Accept() (net.Conn, error) {
	select {
	case f.failed <- struct{}{}:
		return nil, &net.OpError{Op: "accept", Err: syscall.ENOBUFS}
	default:
		return f.Listener.Accept()
	}
}

// A connection that cannot be accepted ends nothing: the relay would stop delivering for it.
func TestAcceptIsTriedAgain(t *testing.T) {
	failed := make(chan struct{}, 1)
	base := serve(t, func(*Config) {}, func(s *Server) {
		s.listener = full{s.listener, failed}
	})
	if code, _, _ := send(t, http.MethodGet, base+"/healthz", ""); code != 200 || len(failed) != 1 {
		t.Errorf("after an error it answers %d; errors: %d", code, len(failed))
	}
	broken := full{new(broken), make(chan struct{}, 1)}
	broken.failed <- struct{}{}
	if err := (&Server{cfg: Config{Log: zap.NewNop()}}).serve(context.Background(), &http.Server{}, broken); err == nil {
		t.Error("a closed listener is no error")
	}
}

// broken is a listener that is closed.
type broken struct{ net.Listener }

func (*broken) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (*broken) Close() error              { return nil }

// What net/http reports is logged, as a warning and once in a while.
func TestServerLog(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	var server http.Server
	logSparingly(&server, zap.New(core))
	for range 3 {
		server.ErrorLog.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
	}
	if all := logs.All(); len(all) != 1 || all[0].Level != zap.WarnLevel || !strings.Contains(all[0].Message, "handshake") {
		t.Errorf("the log has %v", all)
	}
}

// 1,000 idle connections, and as many that send half a request, do not keep out a probe.
func TestIdleConnectionsDoNotLockOutAProbe(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < 8192 {
		limit.Cur = min(limit.Max, 8192)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	for name, begin := range map[string]string{"idle": "", "slow": "GET /healthz HTTP/1.1\r\nHost: x\r\n"} {
		t.Run(name, func(t *testing.T) {
			base := serve(t, func(*Config) {})
			address := strings.TrimPrefix(base, "http://")
			for range 1000 {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write([]byte(begin)); err != nil {
					t.Logf("closed before it was written to: %v", err)
				}
			}
			http.DefaultClient.CloseIdleConnections()
			if code, body, _ := send(t, http.MethodGet, base+"/healthz", ""); code != 200 {
				t.Errorf("the probe answers %d %s", code, body)
			}
		})
	}
}

// A connection with a request in work is not closed for others.
func TestConnectionInWorkStays(t *testing.T) {
	db := hanging{begun: make(chan struct{}, 1), go_: make(chan struct{}), reads: true}
	base := serve(t, func(c *Config) { c.API.Operators = dlq.New(db, "s") })
	answered := make(chan int, 1)
	go func() {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/deferred", nil)
		request.Header.Set("Authorization", asOps)
		answer, err := new(http.Transport).RoundTrip(request)
		if err != nil {
			answered <- 0
			return
		}
		_ = answer.Body.Close()
		answered <- answer.StatusCode
	}()
	<-db.begun
	for range 2 * maxConnections {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if code, _, _ := send(t, http.MethodGet, base+"/healthz", ""); code != 200 {
		t.Errorf("the probe answers %d", code)
	}
	close(db.go_)
	if code := <-answered; code != 503 { // of the database
		t.Errorf("the request in work is answered %d, want 503", code)
	}
}

// The bound itself, without the server's timeouts, which close idle connections later: the one that
// has waited longest goes, and one with a request in work stays.
func TestTheOldestIdleConnectionIsClosed(t *testing.T) {
	c := &connections{open: map[net.Conn]*list.Element{}}
	var all []net.Conn
	for range maxConnections + 1 {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		all = append(all, near)
		c.state(near, http.StateNew)
		if len(all) == 1 {
			c.working(near, true)
		}
	}
	if _, open := c.open[all[0]]; !open || len(c.open) != maxConnections {
		t.Errorf("%d are open, want %d; the one in work: %v", len(c.open), maxConnections, open)
	}
	if _, open := c.open[all[1]]; open {
		t.Error("the oldest idle one is still open")
	}
	_ = all[1].SetDeadline(time.Now())
	if _, err := all[1].Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the oldest idle one was not closed: %v", err)
	}
}

// looking is a ResponseWriter that looks when an answer is sent.
type looking struct {
	*httptest.ResponseRecorder
	look func()
}

func (l looking) WriteHeader(code int) {
	l.look()
	l.ResponseRecorder.WriteHeader(code)
}

// A client that sends its body, or reads its answer, slowly holds up net/http when an answer is
// sent. By then its connection is idle: 256 such clients would lock out the probes otherwise.
func TestAnswerBeingSentIsNotWork(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0", Metrics: metrics.New("", "", ""), Snapshot: opstest.Busy, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	c := &connections{open: map[net.Conn]*list.Element{}}
	near, far := net.Pipe()
	defer far.Close()
	c.state(near, http.StateNew)
	for _, of := range []struct{ method, path string }{
		{"POST", "/healthz"}, {"GET", "/healthz"}, {"GET", "/readyz"}, {"POST", "/api/v1/dead-letters/purge"}, {"GET", "/nothing"},
	} {
		sent := false
		r := httptest.NewRequestWithContext(withConn(t.Context(), near), of.method, of.path, strings.NewReader("{}"))
		c.serve(s.api).ServeHTTP(looking{httptest.NewRecorder(), func() { sent = c.open[near] != nil }}, r)
		if !sent {
			t.Errorf("%s %s is in work while its answer is sent", of.method, of.path)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
