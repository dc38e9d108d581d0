package admin

import (
	"container/list"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

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
