package session

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

func TestGatherEndsWhenEnoughHasCome(t *testing.T) {
	near, far, sock := tcpPair(t)
	go func() {
		for range 1000 { // small pieces, as a walsender's
			if _, err := near.Write(make([]byte, 300)); err != nil {
				return
			}
		}
	}()
	if err := gather(sock, 200_000, never); err != nil {
		t.Fatal(err)
	}
	var there int
	if err := sock.Control(func(fd uintptr) { there, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil {
		t.Fatal(err)
	}
	if there < 200_000 {
		t.Errorf("gather came back with %d of 200,000 bytes", there)
	}
	mustRead(t, far, 300_000)
}

func TestGatherEndsAfterThePause(t *testing.T) {
	near, far, sock := tcpPair(t)
	send(t, near, 10)
	if err := gather(sock, 200_000, time.Millisecond); err != nil {
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
	if err := gather(sock, 200_000, never); err != nil {
		t.Fatal(err)
	}
	mustRead(t, far, 10)
	if _, err := far.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // it must come through as it is
		t.Errorf("%v", err)
	}
	far.Close()
	if err := gather(sock, 200_000, never); err == nil {
		t.Error("gather at a closed socket reports nothing")
	}
}
