package session

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

const (
	keepaliveBytes = keepaliveSize
	rowBytes       = 200
)

// behindACommit is where a nap begins: once.
func behindACommit() func(*Coalescer) {
	first := true
	return func(g *Coalescer) { g.eventsClosed, first = first, false }
}

// napping is a Coalescer with a reader. reads has the bytes of each of its reads; before each of
// them at sets where in the stream it is.
func napping(t *testing.T, at func(*Coalescer)) (g *Coalescer, near net.Conn, far *net.TCPConn, reads <-chan int, end <-chan error) {
	t.Helper()
	near, far, sock := tcpPair(t)
	g = &Coalescer{from: far}
	g.nap.setSocket(sock)
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
	l.setSocket(sock)
	if n := testing.AllocsPerRun(100, func() {
		l.beginNap()
		l.endNap()
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
	if err := r.writeReport(); err != nil {
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
	g, near, _, reads, _ := napping(t, func(g *Coalescer) { g.eventsClosed, g.inTransaction = true, true })
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

// tcpPair is a connection: what is written to the first end is read from the second.
func tcpPair(t *testing.T) (near net.Conn, far *net.TCPConn, sock syscall.RawConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	far = conn.(*net.TCPConn)
	if sock, err = far.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	return near, far, sock
}

// never is a pause that no test can wait for.
const never = time.Hour

func send(t *testing.T, conn net.Conn, n int) {
	t.Helper()
	if _, err := conn.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// mustRead reads n bytes, by Go's poller: with a low-water mark left behind it would wait for ever.
func mustRead(t *testing.T, conn net.Conn, n int) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
}

// Nobody is woken for less than enough: neither gather, nor Go's poller, which has such an epoll.
func TestGatherEndsWhenEnoughHasCome(t *testing.T) {
	const enough, piece = 200_000, 250 // small pieces, as a walsender's
	near, far, sock := tcpPair(t)
	poller, err := unix.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(poller)
	wakes := func() int {
		n, err := unix.EpollWait(poller, make([]unix.EpollEvent, 1), 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var failed error
	if err := sock.Control(func(fd uintptr) {
		failed = unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)})
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	type gathered struct {
		there int
		err   error
	}
	ended := make(chan gathered, 1)
	go func() {
		there, err := waitForBytes(sock, enough, never)
		ended <- gathered{there, err}
	}()
	waitMark(t, sock, enough)
	for sent := piece; sent < enough; sent += piece {
		send(t, near, piece)
	}
	waitQueued(t, sock, enough-piece)
	if n := wakes(); n > 0 || len(ended) > 0 {
		t.Errorf("%d wakes, %d ends for less than enough", n, len(ended))
	}
	send(t, near, piece)
	if g := <-ended; g.err != nil || g.there != enough {
		t.Errorf("gather came back with %d of %d bytes, %v", g.there, enough, g.err)
	}
	mustRead(t, far, enough)
}

// waitMark waits until a socket has this low-water mark.
func waitMark(t *testing.T, sock syscall.RawConn, want int) {
	t.Helper()
	mark := 0
	await.Until(t, "the mark to be set", func() bool {
		if err := sock.Control(func(fd uintptr) { mark, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) }); err != nil {
			t.Fatal(err)
		}
		return mark == want
	}, func() any { return mark })
}

// A read under TLS brings one record, which may be a single row: what has come in one pause is read
// without another.
func TestCoalesceReadsUnderTLSWhatHasCome(t *testing.T) {
	const rows, row, record = 100, 300, 5 + 300 + 1 + 16
	near, far, sock := tcpPair(t)
	files, err := testcerts.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(files.Server.Cert, files.Server.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
	failed := make(chan error, 1)
	go func() {
		var err error
		for range rows {
			if _, e := server.Write(make([]byte, row)); e != nil {
				err = e
			}
		}
		failed <- err
	}()
	client := tls.Client(far, &tls.Config{RootCAs: files.Pool(), ServerName: "localhost"})
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	waitQueued(t, sock, rows*record)
	c, pauses := &Coalescer{from: client, sock: sock, lateness: time.Hour}, 0
	c.beforeRead = func() {
		if _, pause := c.nextPause(); pause > 0 {
			pauses++
		}
	}
	if _, err := io.ReadFull(c, make([]byte, rows*row)); err != nil {
		t.Fatal(err)
	}
	if pauses != 1 {
		t.Errorf("%d pauses to read what had come before the first", pauses)
	}
}

func TestGatherEndsAfterThePause(t *testing.T) {
	near, far, sock := tcpPair(t)
	send(t, near, 10)
	if _, err := waitForBytes(sock, 200_000, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	mustRead(t, far, 10)
	go func() {
		_, _ = near.Write([]byte{1}) // one byte wakes a reader that waits for it
	}()
	mustRead(t, far, 1)
}

func TestGatherEndsWithTheStream(t *testing.T) {
	near, far, sock := tcpPair(t)
	send(t, near, 10)
	near.Close()
	if _, err := waitForBytes(sock, 200_000, never); err != nil {
		t.Fatal(err)
	}
	mustRead(t, far, 10)
	if _, err := far.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // it must come through as it is
		t.Errorf("%v", err)
	}
	far.Close()
	if _, err := waitForBytes(sock, 200_000, never); err == nil {
		t.Error("gather at a closed socket reports nothing")
	}
}

// countedReads counts the reads of a connection.
type countedReads struct {
	net.Conn
	n atomic.Int64
}

func (c *countedReads) Read(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Read(p)
}

// A live event comes in four packets: a Begin, a row, a Commit and a keepalive. It wakes the reader
// for two of them, the row and the Commit.
func TestReadsOfALiveEvent(t *testing.T) {
	const events = 20
	near, far, sock := tcpPair(t)
	from, line := &countedReads{Conn: far}, replicationtest.NewRecorder(1)
	pace := &Coalescer{from: from, sock: sock}
	pace.nap.setSocket(sock)
	se := &Session{
		Shared: &Shared{Cfg: &source.Config{Messages: decode.Messages{Prefix: "p"}}}, term: &Term{Line: line},
		conn: far, coalescer: pace, front: pgproto3.NewFrontend(bufio.NewReaderSize(pace, source.ReadBuffer), io.Discard),
	}
	ended := make(chan error, 1)
	go func() { ended <- se.readStream(context.Background()) }()
	defer func() {
		near.Close()
		<-ended
	}()
	sent := 0
	// packet sends a message, and waits until the reader has read it, or sleeps on.
	packet := func(data []byte) {
		data = append(binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(data))), data...)
		if _, err := near.Write(data); err != nil {
			t.Fatal(err)
		}
		sent += len(data)
		await.Until(t, "the packet to be there", func() bool {
			waits := 0
			if err := sock.Control(func(fd uintptr) { waits, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil {
				t.Fatal(err)
			}
			pace.nap.mu.Lock()
			defer pace.nap.mu.Unlock()
			return int(pace.total.Load())+waits == sent && (waits == 0 || pace.nap.on && waits < napBytes)
		})
		waitAsleep(t)
	}
	numbers := func(kind byte, values ...uint64) []byte {
		data := []byte{kind}
		for _, v := range values {
			data = binary.BigEndian.AppendUint64(data, v)
		}
		return data
	}
	xlog := func(data ...byte) []byte { return append(numbers('w', 0, 0, 0), data...) }
	for lsn := uint64(10); lsn < 10+events; lsn++ {
		packet(xlog(append(numbers('B', lsn, 0), 0, 0, 0, 1)...))
		packet(xlog('M', 1, 0, 0, 0, 0, 0, 0, 0, 0, 'p', 0, 0, 0, 0, 2, '{', '}'))
		packet(xlog(append([]byte{'C'}, numbers(0, lsn, lsn, 0)...)...))
		packet(append(numbers('k', lsn, 0), 0))
	}
	if n := len(line.All()); n != events {
		t.Fatalf("%d events", n)
	}
	if n := from.n.Load(); n > 2*events+2 { // the first Begin, and the one that waits
		t.Errorf("%d reads for %d events", n, events)
	}
}
