package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// pair is a quiet connection, as far as the system has one, and its peer.
func pair(t *testing.T) (quiet, peer net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if peer, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	quiet = Quiet(conn)
	t.Cleanup(func() { quiet.Close(); peer.Close() })
	return quiet, peer
}

// What is written comes, in both directions, also when it is more than a socket takes at once, and
// then the end.
func TestReadAndWrite(t *testing.T) {
	quiet, peer := pair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	for name, way := range map[string][2]net.Conn{"from it": {quiet, peer}, "to it": {peer, quiet}} {
		got := make([]byte, len(sent))
		var all sync.WaitGroup
		all.Go(func() {
			if n, err := way[0].Write(sent); n != len(sent) || err != nil {
				t.Errorf("%s: %d of %d bytes were written, %v", name, n, len(sent), err)
			}
		})
		if _, err := io.ReadFull(iotest.HalfReader(way[1]), got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: something else was read, %v", name, err)
		}
		all.Wait()
	}
	peer.Close()
	if n, err := quiet.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the end: %d, %v", n, err)
	}
}

// Errors are those of net.TCPConn.
func TestErrors(t *testing.T) {
	plain, _ := pair(t)
	if c, is := plain.(*Conn); is {
		plain = c.TCPConn
	}
	quiet, peer := pair(t)
	one := make([]byte, 1)
	check := func(what string, do func(net.Conn) error, want error) {
		t.Helper()
		err, as := do(quiet), do(plain)
		var own, of *net.OpError
		if !errors.Is(err, want) || !errors.As(err, &own) || !errors.As(as, &of) || own.Op != of.Op || own.Net != of.Net || own.Timeout() != of.Timeout() {
			t.Errorf("%s: %v, want as %v", what, err, as)
		}
	}
	read := func(c net.Conn) error { _, err := c.Read(one); return err }
	write := func(c net.Conn) error { _, err := c.Write(one); return err }
	check("a deadline that has passed", func(c net.Conn) error {
		return errors.Join(c.SetReadDeadline(time.Unix(1, 0)), read(c))
	}, os.ErrDeadlineExceeded)
	check("a deadline of writes", func(c net.Conn) error {
		return errors.Join(c.SetWriteDeadline(time.Unix(1, 0)), write(c))
	}, os.ErrDeadlineExceeded)
	if err := errors.Join(quiet.SetDeadline(time.Time{}), plain.SetDeadline(time.Time{})); err != nil {
		t.Fatal(err)
	}
	if n, err := quiet.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing is read: %d, %v", n, err)
	}
	if n, err := quiet.Write(nil); n != 0 || err != nil {
		t.Errorf("nothing is written: %d, %v", n, err)
	}
	check("a reset", func(c net.Conn) error {
		if c == plain {
			return &net.OpError{Op: "read", Net: "tcp"}
		}
		if err := peer.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		peer.Close()
		return read(c)
	}, syscall.ECONNRESET)
	quiet.Close()
	plain.Close()
	check("a read when it is closed", read, net.ErrClosed)
	check("a write when it is closed", write, net.ErrClosed)
}

// A deadline, or the end of the connection, wakes a reader that waits.
func TestAWaitingReadEnds(t *testing.T) {
	for name, end := range map[string]func(net.Conn) error{
		"a deadline": func(c net.Conn) error { return c.SetReadDeadline(time.Unix(1, 0)) },
		"its close":  func(c net.Conn) error { return c.Close() },
	} {
		quiet, _ := pair(t)
		done := make(chan error)
		go func() {
			_, err := quiet.Read(make([]byte, 1))
			done <- err
		}()
		if err := end(quiet); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Errorf("%s does not end a read", name)
		}
	}
}

// A deadline ends a write that has begun and that nobody reads. What it says was written comes.
func TestAStuckWriteEnds(t *testing.T) {
	quiet, peer := pair(t)
	began := make(chan error)
	go func() {
		_, err := io.ReadFull(peer, make([]byte, 1))
		began <- errors.Join(err, quiet.SetWriteDeadline(time.Unix(1, 0)))
	}()
	n, err := quiet.Write(make([]byte, 64<<20)) // more than two sockets hold
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes were written, %v", n, err)
	}
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	quiet.Close()
	if come, err := io.Copy(io.Discard, peer); come+1 != int64(n) || err != nil {
		t.Errorf("%d bytes came of %d, %v", come+1, n, err)
	}
}

// TryWrite writes what the socket takes and does not wait, and Write continues behind it.
func TestTryWrite(t *testing.T) {
	conn, peer := pair(t)
	quiet, ok := conn.(*Conn)
	if !ok {
		return // this system has none
	}
	piece, total := bytes.Repeat([]byte("x"), 1<<20), 0
	for {
		n := quiet.TryWrite(piece)
		if total += n; n < len(piece) {
			break // the socket is full, since nobody reads
		}
	}
	if n := quiet.TryWrite(nil); n != 0 {
		t.Errorf("%d bytes of nothing are written", n)
	}
	go func() {
		_, _ = quiet.Write([]byte("the end"))
		quiet.Close()
	}()
	got, err := io.ReadAll(peer)
	if err != nil || len(got) != total+len("the end") || !bytes.HasSuffix(got, []byte("xthe end")) {
		t.Errorf("%d bytes came of %d, %v", len(got), total+len("the end"), err)
	}
	if n := quiet.TryWrite(piece); n != 0 {
		t.Errorf("%d bytes are written to a closed connection", n)
	}
}

// A byte that waits, and the end, are no silence; a byte that IsSilent has seen can be read.
func TestIsSilent(t *testing.T) {
	conn, peer := pair(t)
	quiet, ok := conn.(*Conn)
	if !ok {
		return
	}
	if !quiet.IsSilent() {
		t.Error("a new connection is not silent")
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for quiet.IsSilent() { // it is on its way
	}
	one := make([]byte, 1)
	if n, err := quiet.Read(one); n != 1 || err != nil || one[0] != 'x' || !quiet.IsSilent() {
		t.Errorf("read %q, %v", one[:n], err)
	}
	peer.Close()
	for quiet.IsSilent() {
	}
	quiet.Close()
	if quiet.IsSilent() {
		t.Error("a closed connection is silent")
	}
}

// A Read and a Write allocate nothing.
func TestAllocations(t *testing.T) {
	quiet, peer := pair(t)
	b := make([]byte, 64)
	for name, way := range map[string][2]net.Conn{"write": {quiet, peer}, "read": {peer, quiet}} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := way[0].Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(way[1], b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %.0f allocations", name, n)
		}
	}
}

// What is no TCP connection is left alone.
func TestOtherConnections(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Quiet(a) != a {
		t.Error("a pipe is another connection now")
	}
	closed, _ := pair(t)
	closed.Close()
	if c, is := closed.(*Conn); is {
		if _, err := Quiet(c.TCPConn).Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed connection: %v", err)
		}
	}
}
