package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// manager is what systemd is for the relay: the socket that it is told on.
type manager struct {
	t     *testing.T
	conn  *net.UnixConn
	lines []string // of a message, that until has not come to
}

// startNotify starts the relay as systemd does (Type=notify, WatchdogSec), and waits for nothing.
func (r *rig) startNotify(watchdog time.Duration) (*runner.Relay, *manager) {
	r.t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be longer than the address of a socket
	must(r.t, err)
	r.t.Cleanup(func() { os.RemoveAll(dir) })
	socket, wrapper := filepath.Join(dir, "socket"), filepath.Join(dir, "relay.sh")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	must(r.t, os.WriteFile(wrapper, fmt.Appendf(nil, "#!/bin/sh\nexport NOTIFY_SOCKET=%s WATCHDOG_USEC=%d WATCHDOG_PID=$$\nexec %s \"$@\"\n",
		socket, watchdog.Microseconds(), r.binary), 0o700))
	return runner.Start(r.t, wrapper, r.yaml()), &manager{t: r.t, conn: conn}
}

// next is the next message, "" when none comes for so long.
func (m *manager) next(patience time.Duration) string {
	m.t.Helper()
	must(m.t, m.conn.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	must(m.t, err)
	return string(buf[:n])
}

// until reads until a line begins so, and returns it. What stands behind it in its message is read
// next.
func (m *manager) until(begin string) (found string) {
	m.t.Helper()
	seen := map[string]int{}
	await.Until(m.t, begin, func() bool {
		if len(m.lines) == 0 {
			m.lines = strings.FieldsFunc(m.next(time.Second), func(r rune) bool { return r == '\n' })
			return false
		}
		found, m.lines = m.lines[0], m.lines[1:]
		seen[found]++
		return strings.HasPrefix(found, begin)
	}, func() any { return seen })
	return found
}

// systemd is told when the relay is up, though it still waits for PostgreSQL, healthy and not
// ready, with one line in the log; what it does, that it lives, and that it stops.
func TestSystemd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "delivery: {shutdown_grace: 100s}"
	p := proxy(t, servers.SharedPostgres(t).Addr())
	r.db = through(r.db, p.Addr())
	p.Cut()
	relay, m := r.startNotify(100 * time.Millisecond)
	m.until("READY=1")
	m.until("STATUS=waiting for postgres: ")
	m.until("WATCHDOG=1")
	says(t, relay, "/healthz", 200)
	says(t, relay, "/readyz", 503, "waiting for postgres", "connection refused")
	must(t, p.Restore())
	m.until("STATUS=idle")
	if n := strings.Count(relay.Log(), "waiting for PostgreSQL"); n != 1 {
		t.Errorf("%d lines about the server, want 1: %s", n, relay.Log())
	}
	p.Cut()
	m.until("STATUS=waiting for postgres: ")
	must(t, p.Restore())
	m.until("STATUS=idle")
	for range 5 {
		m.until("WATCHDOG=1")
	}
	must(t, relay.Signal(syscall.SIGTERM))
	m.until("STOPPING=1")
	m.until("EXTEND_TIMEOUT_USEC=115000000")
	if code, err := relay.Exit(await.Context(t)); code != 0 || err != nil {
		t.Errorf("exit %d, %v", code, err)
	}
}
