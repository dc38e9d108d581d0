package session

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

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
		there, err := gather(sock, enough, never)
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
	c, pauses := &Coalescer{from: client, sock: sock, late: time.Hour}, 0
	c.before = func() {
		if _, pause := c.pause(); pause > 0 {
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
	if _, err := gather(sock, 200_000, time.Millisecond); err != nil {
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
	if _, err := gather(sock, 200_000, never); err != nil {
		t.Fatal(err)
	}
	mustRead(t, far, 10)
	if _, err := far.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // it must come through as it is
		t.Errorf("%v", err)
	}
	far.Close()
	if _, err := gather(sock, 200_000, never); err == nil {
		t.Error("gather at a closed socket reports nothing")
	}
}
