package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// listenTo opens the stream, and returns what comes line by line; next is false at its end.
func listenTo(t *testing.T, base string) (answer *http.Response, next func() (line string, more bool)) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+streamPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", asAnn)
	answer, err = http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewReader(answer.Body)
	return answer, func() (string, bool) {
		line, err := lines.ReadString('\n')
		return strings.TrimSuffix(line, "\n"), err == nil
	}
}

// nextEvent reads one event of the stream, and passes signs of life.
func nextEvent(t *testing.T, next func() (string, bool)) (name, data string) {
	t.Helper()
	for {
		line, more := next()
		value, isEvent := strings.CutPrefix(line, "event: ")
		switch {
		case !more:
			t.Fatal("the stream has ended")
		case isEvent:
			body, _ := next()
			if empty, _ := next(); empty != "" {
				t.Fatalf("event %s has a second line: %q", value, empty)
			}
			return value, strings.TrimPrefix(body, "data: ")
		}
	}
}

// A listener gets the status at once and at each look, and points and marks when there are any,
// each as one line of JSON.
func TestStream(t *testing.T) {
	var up atomic.Bool
	base := serve(t, func(c *Config) {
		c.Snapshot = func() ops.Snapshot {
			s := opstest.Busy()
			s.Sink = ops.Sink{Up: up.Load(), Why: "a\nb"}
			return s
		}
	}, func(s *Server) { s.lookEvery = 50 * time.Millisecond })
	answer, next := listenTo(t, base)
	if got := answer.Header.Get("Content-Type") + answer.Header.Get("Cdc-Relay-Role"); answer.StatusCode != http.StatusOK || got != "text/event-streamread" {
		t.Fatalf("it answers %d, %s", answer.StatusCode, got)
	}
	if line, _ := next(); line != "retry: 2000" {
		t.Errorf("the first line is %q", line)
	}
	seen := map[string]string{}
	for len(seen) < 3 {
		name, data := nextEvent(t, next)
		if len(seen) == 0 && name != "status" {
			t.Errorf("the first event is %s", name)
		}
		if !json.Valid([]byte(data)) {
			t.Fatalf("%s has %q", name, data)
		}
		seen[name] = data
		up.Store(!up.Load())
	}
	var status ops.Status
	if err := json.Unmarshal([]byte(seen["status"]), &status); err != nil || status.Role != ops.RoleLeader || !strings.Contains(seen["mark"], `"kind":"`) || !strings.Contains(seen["point"], `"lag_bytes":`) {
		t.Errorf("%v, %v", seen, err)
	}
}

// The 33rd listener is told to come back, and finds a place when another one has left.
func TestTooManyListeners(t *testing.T) {
	var s *Server
	base := serve(t, func(*Config) {}, func(started *Server) { s = started; s.lookEvery = time.Hour })
	var last chan []byte
	for range maxListeners {
		last, _ = s.listeners.join()
	}
	code, body, header := send(t, http.MethodGet, base+streamPath, "")
	if code != 503 || header.Get("Retry-After") != "5" || !strings.Contains(body, "32 listeners read the stream already") {
		t.Errorf("it answers %d %s", code, body)
	}
	s.listeners.leave(last)
	if answer, _ := listenTo(t, base); answer.StatusCode != http.StatusOK {
		t.Errorf("it answers %d", answer.StatusCode)
	}
	s.listeners.end()
	if code, body, _ := send(t, http.MethodGet, base+streamPath, ""); code != 503 || !strings.Contains(body, "the relay is stopping") {
		t.Errorf("while the relay stops it answers %d %s", code, body)
	}
	if code, body, _ := send(t, http.MethodPost, base+streamPath, "{}"); code != 405 {
		t.Errorf("POST answers %d %s", code, body)
	}
	if code, _, _ := send(t, http.MethodGet, base+streamPath, "", "Authorization", ""); code != 401 {
		t.Errorf("without a token it answers %d", code)
	}
}

// Who does not take what it is sent is dropped, and the others get all of it.
func TestSlowListener(t *testing.T) {
	var l listeners
	slow, _ := l.join()
	quick, _ := l.join()
	for i := range 3 * listenerQueue {
		l.send([]byte{byte(i)})
		if got := <-quick; got[0] != byte(i) {
			t.Fatalf("message %d is %d", i, got[0])
		}
	}
	n := 0
	for range slow {
		n++
	}
	if n != listenerQueue || !l.present() {
		t.Errorf("the slow one got %d messages", n)
	}
	l.leave(quick)
	l.leave(quick)
	l.leave(slow)
	l.end()
	if late, refused := l.join(); l.present() || late != nil || refused == "" {
		t.Error("one has joined after the end")
	}
}

// Neither the server's timeouts end a stream, nor the bound on connections; the relay's stop does.
func TestStreamOutlastsTimeouts(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0", Metrics: metrics.New("", "", ""), Snapshot: opstest.Busy, Log: zap.NewNop(), Tokens: []Token{fixed("ann", "read", false)}})
	if err != nil {
		t.Fatal(err)
	}
	s.lookEvery = 5 * time.Millisecond
	server := s.newHTTP(s.api, withConn)
	server.ReadTimeout, server.WriteTimeout = 40*time.Millisecond, 40*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	looked, served := make(chan struct{}), make(chan error, 1)
	go func() { s.lookAround(ctx); close(looked) }()
	go func() { served <- s.serve(ctx, server, s.listener) }()
	_, next := listenTo(t, "http://"+s.Addr())
	began := time.Now()
	for events := 0; events < 20 || time.Since(began) < 5*server.WriteTimeout; events++ {
		nextEvent(t, next)
	}
	for range maxConnections + 10 { // each is the newest
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	for range 20 {
		nextEvent(t, next)
	}
	cancel()
	for more := true; more; {
		_, more = next()
	}
	<-looked
	if err := <-served; err != nil {
		t.Errorf("serve returns %v", err)
	}
}

// A token that no longer is one ends the stream.
func TestStreamOfATokenThatEnds(t *testing.T) {
	var ended atomic.Bool
	base := serve(t, func(c *Config) {
		c.Tokens = []Token{{Name: "ann", Read: func() (string, error) {
			if ended.Load() {
				return "another", nil
			}
			return "read", nil
		}}}
	}, func(s *Server) { s.lookEvery, s.recheckEvery = time.Hour, time.Millisecond })
	_, next := listenTo(t, base)
	for line := ""; line != ": heartbeat"; {
		line, _ = next()
	}
	ended.Store(true)
	for more := true; more; {
		_, more = next()
	}
}
