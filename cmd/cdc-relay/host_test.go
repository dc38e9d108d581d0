package main

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// used is what a process uses in each of its next looks, in parts of one processor. Below 0: as
// much, and the line is full.
type used []float64

// play has the looks of a process that uses so much, and returns what was set after which look.
func play(t *testing.T, parts used) (set map[int]bool) {
	t.Helper()
	set = map[int]bool{}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		look := func() int { return int(time.Since(began) / processorsEvery) }
		p := &processors{wide: true, used: func() (sum time.Duration) {
			for _, part := range parts[:min(look(), len(parts))] {
				sum += time.Duration(math.Abs(part) * float64(processorsEvery))
			}
			return sum
		}, full: func() bool { return parts[min(look(), len(parts))-1] < 0 }, set: func(wide bool) { set[look()] = wide }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(parts))*processorsEvery+processorsEvery/2)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return set
}

func times(n int, part float64) used { return slices.Repeat(used{part}, n) }

// One processor is enough when little was used in a second; one look with much brings the others
// back, and what is between changes nothing.
func TestProcessorsFollowWhatIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		parts used
		want  map[int]bool
	}{
		"idle":                     {times(30, 0), map[int]bool{10: false}},
		"a live stream":            {times(30, 0.1), map[int]bool{10: false}},
		"a backlog":                {times(30, 1.4), map[int]bool{}},
		"a backlog, then a stream": {slices.Concat(times(7, 1), times(20, 0.1)), map[int]bool{20: false}},
		"a stream, then a backlog": {slices.Concat(times(12, 0.1), times(20, 0.9)), map[int]bool{10: false, 13: true}},
		"a long list once":         {slices.Concat(times(15, 0.1), times(1, 0.5), times(14, 0.1)), map[int]bool{10: false, 16: true, 26: false}},
		"neither little nor much":  {times(30, 0.4), map[int]bool{}},
		"little, then rather more": {slices.Concat(times(15, 0.1), times(30, 0.3)), map[int]bool{10: false}},
		"a slow broker":            {times(30, -0.1), map[int]bool{}},
		"a stream, a slow broker":  {slices.Concat(times(15, 0.1), times(1, -0.1), times(14, 0.1)), map[int]bool{10: false, 16: true, 26: false}},
		"a crowded machine":        {slices.Concat(times(12, 0.1), times(30, 0.4)), map[int]bool{10: false, 20: true}},
		"a stream with bursts":     {slices.Repeat(slices.Concat(times(9, 0.1), times(1, 0.45)), 4), map[int]bool{10: false}},
	} {
		t.Run(name, func(t *testing.T) {
			got := play(t, c.parts)
			if len(got) != len(c.want) {
				t.Fatalf("set %v, want %v", got, c.want)
			}
			for at, wide := range c.want {
				if is, ok := got[at]; !ok || is != wide {
					t.Errorf("set %v, want %v", got, c.want)
				}
			}
		})
	}
}

// The runtime has what was set, and the process' own time is what is looked at.
func TestProcessorsOfThisProcess(t *testing.T) {
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	runtime.SetDefaultGOMAXPROCS() // whatever -cpu says
	all := runtime.GOMAXPROCS(0)
	setProcessors(false)
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors, want 1", n)
	}
	setProcessors(true)
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("%d processors, want all %d", n, all)
	}
	before := processorTime()
	for processorTime() < before+20*time.Millisecond { // this work is counted
	}
}

// Who sets GOMAXPROCS is obeyed.
func TestProcessorsAreTheUsersOwn(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	if !processorsSettled() {
		t.Error("GOMAXPROCS is set and not obeyed")
	}
	t.Setenv("GOMAXPROCS", "")
	if processorsSettled() != (runtime.GOMAXPROCS(0) == 1) {
		t.Error("with nothing set the number is settled on a machine with one processor only")
	}
}
