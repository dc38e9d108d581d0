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

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// manager is what systemd is for the relay: the socket that it is told on.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// startNotify starts the relay as systemd does (Type=notify, WatchdogSec), and waits for nothing.
func (r *rig) startNotify(watchdog time.Duration) (*devenv.Relay, *manager) {
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
	return devenv.StartRelay(r.t, wrapper, r.yaml()), &manager{r.t, conn}
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

// until reads until a message has a line that begins so, and returns the message.
func (m *manager) until(line string) string {
	m.t.Helper()
	var seen []string
	for ends := time.Now().Add(2 * bound); time.Now().Before(ends); {
		message := m.next(bound)
		if strings.Contains("\n"+message, "\n"+line) {
			return message
		}
		seen = append(seen, message)
	}
	m.t.Fatalf("no %q, but %q", line, seen)
	return ""
}

// systemd is told when the relay is up, though it still waits for PostgreSQL, what it does, that it lives, and that it stops.
func TestSystemd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "delivery: {shutdown_grace: 150s}"
	p := proxy(t, devenv.SharedPostgres(t).Addr())
	r.db = through(r.db, p.Addr())
	p.Cut()
	relay, m := r.startNotify(100 * time.Millisecond)
	m.until("READY=1")
	m.until("STATUS=waiting for postgres: ")
	m.until("WATCHDOG=1")
	must(t, p.Mend())
	m.until("STATUS=idle")
	p.Cut()
	m.until("STATUS=waiting for postgres: ")
	must(t, p.Mend())
	m.until("STATUS=idle")
	for range 5 {
		m.until("WATCHDOG=1")
	}
	must(t, relay.Signal(syscall.SIGTERM))
	if stopping := m.until("STOPPING=1"); !strings.Contains(stopping, "EXTEND_TIMEOUT_USEC=165000000") {
		t.Errorf("it says %q, and not for how long", stopping)
	}
	if code, err := relay.Exit(within(t, bound)); code != 0 || err != nil {
		t.Errorf("exit %d, %v", code, err)
	}
}

// A process that does not run is not fed for, and goes on when it does; what ended it is the last that systemd shows.
func TestSystemdSeesAFrozenRelay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay, m := r.startNotify(100 * time.Millisecond)
	m.until("STATUS=idle")
	must(t, relay.Freeze())
	for ends := time.Now().Add(2 * bound); m.next(time.Second) != ""; {
		if time.Now().After(ends) {
			t.Fatal("it is fed while the process does not run")
		}
	}
	must(t, relay.Thaw())
	m.until("WATCHDOG=1")
	r.exec(`DROP PUBLICATION ` + r.slot)
	if last := m.until("STATUS=stopped: "); !strings.Contains(last, r.slot) {
		t.Errorf("the last word is %q", last)
	}
	r.ends(relay, 3, "publication")
}
