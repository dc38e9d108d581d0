package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// dial opens a connection that lives until the test ends.
func dial(t *testing.T, base string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// fetch asks on a connection of its own, as a probe does.
func fetch(t *testing.T, url string) (body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %d %s, %v", url, answer.StatusCode, content, err)
	}
	return string(content)
}

// With a thousand idle connections, half of them after a first request, and more slow clients than
// there is room for, health and metrics still answer, and the number of open connections is
// bounded.
func TestIdleConnectionsAndSlowClients(t *testing.T) {
	base := serve(t, func(*Config) {})
	all := make([]net.Conn, 1000)
	for i := range all {
		all[i] = dial(t, base)
		if i%2 == 0 {
			continue
		}
		if _, err := io.WriteString(all[i], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(all[i]), nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	slow := make([]net.Conn, maxConnections+50)
	for i := range slow {
		slow[i] = dial(t, base)
	}
	const header = "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: "
	for i := range header {
		for _, conn := range slow {
			_, _ = conn.Write([]byte{header[i]}) // it may have been closed to make room
		}
		if body := fetch(t, base+"/healthz"); !strings.Contains(body, `"healthy":true`) {
			t.Fatalf("after %d bytes /healthz answers %s", i, body)
		}
		if body := fetch(t, base+"/metrics"); !strings.Contains(body, "\noutbox_events_total{") {
			t.Fatalf("after %d bytes /metrics answers %s", i, body)
		}
	}
	// Those that were closed are recognized by their end, once it has come.
	left := slices.Concat(all, slow)
	await.Until(t, fmt.Sprintf("at most %d open connections", maxConnections), func() bool {
		left = slices.DeleteFunc(left, func(conn net.Conn) bool { return ended(t, conn) })
		return len(left) <= maxConnections
	}, func() any { return len(left) })
}

// ended reports whether the end of a connection has come.
func ended(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// A header that never ends is cut off after some seconds, however steadily its bytes arrive.
func TestSlowHeaderIsCut(t *testing.T) {
	base := serve(t, func(*Config) {})
	conn := dial(t, base)
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		cut <- err
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-cut:
			return
		case <-tick.C:
			_, _ = conn.Write([]byte("x")) // the answer is read above
		}
	}
}

// The connection that has waited the longest makes room. One that is being answered does not.
func TestRoomForNewConnection(t *testing.T) {
	c := newConnections(3)
	var closed []string
	conn := func(name string) *closing { return &closing{name: name, closed: &closed} }
	a, b, busy, d, e := conn("a"), conn("b"), conn("busy"), conn("d"), conn("e")
	was := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(closed); got != want {
			t.Errorf("%s: closed are %s, want %s", when, got, want)
		}
		closed = nil
	}
	for _, conn := range []net.Conn{busy, a, b} {
		c.state(conn, http.StateNew)
	}
	c.state(busy, http.StateActive)
	was("three", "[]")
	c.state(a, http.StateActive)
	c.state(a, http.StateIdle) // waits again, for less long than b
	c.state(d, http.StateNew)
	was("the fourth", "[b]")
	c.state(b, http.StateClosed)
	c.state(a, http.StateClosed) // by the client
	c.state(a, http.StateNew)
	was("the third again", "[]")
	for _, conn := range []net.Conn{a, d} {
		c.state(conn, http.StateActive)
	}
	c.state(e, http.StateNew)
	was("all are being answered", "[e]")
	c.state(e, http.StateClosed)
	for _, conn := range []net.Conn{a, d, busy} {
		c.state(conn, http.StateClosed)
	}
	if c.open != 0 || len(c.waiting) != 0 {
		t.Errorf("in the end %d are open and %d wait", c.open, len(c.waiting))
	}
}

// closing is a connection that records its end.
type closing struct {
	net.Conn
	name   string
	closed *[]string
}

func (c *closing) Close() error {
	*c.closed = append(*c.closed, c.name)
	return nil
}
