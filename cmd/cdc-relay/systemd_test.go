package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// listener is the socket of a service manager.
func listener(t *testing.T) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be longer than the address of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

// waitForLine reads until a message has the line.
func waitForLine(t *testing.T, conn *net.UnixConn, line string) {
	t.Helper()
	buf := make([]byte, 4096)
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("wait for %q: %v", line, err)
		}
		if strings.Contains("\n"+string(buf[:n])+"\n", "\n"+line+"\n") {
			return
		}
	}
}

// The watchdog is fed while nothing is stuck, not while something is, and again when it continues.
func TestWatchdogIsFedInHealthAlone(t *testing.T) {
	conn := listener(t)
	t.Setenv("WATCHDOG_USEC", "4000")
	var stuck atomic.Bool
	asked := make(chan bool)
	logs, seen := observer.New(zap.ErrorLevel)
	s := &systemd{
		grace: time.Hour, log: zap.New(logs),
		status: func() ops.Status { return ops.Status{State: ops.StateBrokerDown, Why: "no\nroute\x1b"} },
		health: func() ops.Health {
			is := stuck.Load()
			select {
			case asked <- is:
			case <-t.Context().Done():
			}
			return ops.Health{Healthy: !is, Stuck: []string{"the feeder has been stuck for 5m"}}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reading, stopReading := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, reading) }()

	waitForLine(t, conn, "STATUS=broker down: no route?")
	<-asked
	waitForLine(t, conn, "WATCHDOG=1")
	stuck.Store(true)
	for range 3 {
		for is := range asked { // the question before was answered, and what came of it was sent
			if is {
				break
			}
		}
	}
	if n := drain(t, conn); n > 1 { // from before
		t.Errorf("the watchdog was fed %d times", n)
	}
	if seen.Len() != 1 {
		t.Errorf("%d log lines, want one", seen.Len())
	}
	stuck.Store(false)
	for <-asked {
	}
	waitForLine(t, conn, "WATCHDOG=1")
	go func() {
		for {
			select {
			case <-asked:
			case <-t.Context().Done():
				return
			}
		}
	}()
	stopReading()
	waitForLine(t, conn, "EXTEND_TIMEOUT_USEC=3615000000")
	s.setEnded(errors.New("slot gone"))
	cancel()
	waitForLine(t, conn, "STATUS=stopped: slot gone")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A relay that was stuck for a moment is fed as soon as it recovers: the next regular feed may be
// too late.
func TestWatchdogIsFedOnceWellAgain(t *testing.T) {
	conn := listener(t)
	t.Setenv("WATCHDOG_USEC", "86400000000") // fed every twelve hours
	asked := 0
	s := &systemd{
		log:    zap.NewNop(),
		status: func() ops.Status { return ops.Status{State: ops.StateIdle} },
		health: func() ops.Health {
			asked++
			return ops.Health{Healthy: asked > 2, Stuck: []string{"the reporter has been stuck for 16s"}}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, ctx) }()
	waitForLine(t, conn, "WATCHDOG=1")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// drain reads what has been sent and counts how often the watchdog was fed.
func drain(t *testing.T, conn *net.UnixConn) (fed int) {
	t.Helper()
	buf := make([]byte, 4096)
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return fed
		}
		if string(buf[:n]) == "WATCHDOG=1" {
			fed++
		}
	}
}
