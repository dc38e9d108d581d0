package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

const (
	keepaliveBytes = keepaliveSize
	rowBytes       = 200
)

// behindACommit is where a nap begins: once.
func behindACommit() func(*Coalescer) {
	first := true
	return func(g *Coalescer) { g.closed, first = first, false }
}

// napping is a Coalescer with a reader. reads has the bytes of each of its reads; before each of
// them at sets where in the stream it is.
func napping(t *testing.T, at func(*Coalescer)) (g *Coalescer, near net.Conn, far *net.TCPConn, reads <-chan int, end <-chan error) {
	t.Helper()
	near, far, sock := tcpPair(t)
	g = &Coalescer{from: far}
	g.nap.at(sock)
	brought, ended := make(chan int, 100), make(chan error, 1)
	go readNapping(g, at, brought, ended)
	t.Cleanup(func() {
		far.Close()
		<-ended
	})
	return g, near, far, brought, ended
}

func readNapping(g *Coalescer, at func(*Coalescer), brought chan<- int, ended chan<- error) {
	defer close(ended)
	b := make([]byte, 4096)
	for {
		at(g)
		n, err := g.Read(b)
		if err != nil {
			ended <- err
			return
		}
		brought <- n
	}
}

// waitAsleep waits until the reader waits for the kernel: what comes before, it reads without being
// woken.
func waitAsleep(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	await.Until(t, "the reader to sleep", func() bool {
		for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if bytes.Contains(stack, []byte("(*Coalescer).Read(")) && bytes.Contains(stack, []byte("[IO wait")) {
				return true
			}
		}
		return false
	})
}

// waitQueued waits until so many bytes lie at the socket, unread.
func waitQueued(t *testing.T, sock syscall.RawConn, want int) {
	t.Helper()
	there := 0
	await.Until(t, fmt.Sprintf("%d bytes to lie at the socket", want), func() bool {
		if err := sock.Control(func(fd uintptr) { there, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil {
			t.Fatal(err)
		}
		return there == want
	}, func() any { return there })
}

func mustNotNap(t *testing.T, g *Coalescer) {
	t.Helper()
	g.nap.mu.Lock()
	defer g.nap.mu.Unlock()
	if g.nap.on {
		t.Fatal("the nap goes on")
	}
}

func mustBring(t *testing.T, reads <-chan int, want int) {
	t.Helper()
	select {
	case n := <-reads:
		if n != want {
			t.Fatalf("a read has brought %d bytes, want %d", n, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no read has brought %d bytes", want)
	}
}

// A keepalive and a Begin wake nobody. What may follow a Begin does, even the smallest message that
// there is.
func TestNapSleepsUntilARowComes(t *testing.T) {
	g, near, _, reads, _ := napping(t, behindACommit())
	waitAsleep(t)
	send(t, near, keepaliveBytes)
	waitQueued(t, g.nap.sock, keepaliveBytes)
	send(t, near, beginSize)
	waitQueued(t, g.nap.sock, keepaliveBytes+beginSize)
	send(t, near, rowBytes)
	mustBring(t, reads, keepaliveBytes+beginSize+rowBytes)
}

func TestNapIsNoLongerThanABeginAndAnythingMore(t *testing.T) {
	const smallest = copyHeader + xlogHeader + 1
	const commit = copyHeader + xlogHeader + 1 + 1 + 8 + 8 + 8
	if napBytes > 1+smallest+commit {
		t.Errorf("a nap of %d bytes may hold up the last byte of a Begin with a row and a Commit, %d bytes", napBytes, 1+smallest+commit)
	}
	if napBytes > beginSize+smallest {
		t.Errorf("a nap of %d bytes may hold up a Begin with what follows it, %d bytes", napBytes, beginSize+smallest)
	}
	if napBytes <= keepaliveBytes+beginSize {
		t.Errorf("a nap of %d bytes ends with a keepalive and a Begin, %d bytes", napBytes, keepaliveBytes+beginSize)
	}
}

// There may be one for each event.
func TestNapAllocatesNothing(t *testing.T) {
	_, _, sock := tcpPair(t)
	var l nap
	l.at(sock)
	if n := testing.AllocsPerRun(100, func() {
		l.begin()
		l.end()
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// A report ends the nap, and that wakes the reader for what is there.
func TestReportEndsANap(t *testing.T) {
	g, near, _, reads, _ := napping(t, behindACommit())
	waitAsleep(t)
	send(t, near, keepaliveBytes)
	waitQueued(t, g.nap.sock, keepaliveBytes)
	r := newReporter(t)
	r.Session.coalescer = g
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	mustNotNap(t, g)
	mustBring(t, reads, keepaliveBytes)
	send(t, near, 1) // and there is no other before the next commit
	mustBring(t, reads, 1)
}

// Inside a transaction there is none: the Commit behind its last row is smaller than what a nap
// sleeps through.
func TestNoNapInsideATransaction(t *testing.T) {
	// a Commit and the next Begin came together
	g, near, _, reads, _ := napping(t, func(g *Coalescer) { g.closed, g.open = true, true })
	for range 10 {
		waitAsleep(t)
		mustNotNap(t, g)
		send(t, near, 1)
		mustBring(t, reads, 1)
	}
}

// The ends of the stream and of the session come through a nap.
func TestNapEndsWithTheStream(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(near net.Conn, far *net.TCPConn) error
		want error
	}{
		"end of the stream": {func(near net.Conn, _ *net.TCPConn) error { return near.Close() }, io.EOF},
		"a deadline":        {func(_ net.Conn, far *net.TCPConn) error { return far.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"a reset": {func(near net.Conn, _ *net.TCPConn) error {
			return errors.Join(near.(*net.TCPConn).SetLinger(0), near.Close())
		}, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			_, near, far, _, end := napping(t, behindACommit())
			waitAsleep(t)
			if err := c.end(near, far); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-end:
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			case <-time.After(time.Minute):
				t.Error("the reader sleeps on")
			}
		})
	}
}
