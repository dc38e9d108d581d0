// Package socket has TCP connections on which a live event costs less.
//
// A Go program has a monitor thread. It sleeps while nothing runs, and every system call that is
// made in the ordinary way wakes it when it sleeps (entersyscall in package runtime), so that
// it can help if the call blocks. It then looks every 20 microseconds until nothing runs again. For
// an event that comes alone, these wakes are a good part of all processor time.
//
// Go's sockets never block: the kernel answers at once, and Go's poller waits. So nobody has to
// watch over these calls, and on Linux a Conn makes them as raw system calls.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Conn is a TCP connection, whose Read and Write are those of net.TCPConn in all but the way they
// call the kernel.
type Conn struct {
	*net.TCPConn
	raw         syscall.RawConn
	read, write call
	tryOnce     func(fd uintptr) bool // TryWrite's
	listen      func(fd uintptr)      // IsSilent's, and its result
	silent      bool
}

// call is a Read or Write that is under way. Its functions are made once, so that no call allocates
// them.
type call struct {
	mu    sync.Mutex // several goroutines may read, or write
	p     []byte
	done  int  // bytes of p
	end   bool // of the stream
	err   error
	once  func(fd uintptr) bool             // tries; false: the socket is not ready
	ready func(func(fd uintptr) bool) error // has once try until it was ready
}

// Quiet makes a Conn of a TCP connection. Other connections, and all on Windows, are returned as
// they are.
func Quiet(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok || !hasCalls {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil { // it is closed: whoever uses it is told
		return c
	}
	q := &Conn{TCPConn: tcp, raw: raw, read: call{ready: raw.Read}, write: call{ready: raw.Write}}
	r, w := &q.read, &q.write
	q.tryOnce = func(fd uintptr) bool {
		if n, errno := rawWrite(fd, w.p); errno == 0 {
			w.done = n
		}
		return true
	}
	q.listen = func(fd uintptr) { q.silent = rawPeek(fd) == syscall.EAGAIN }
	r.once = func(fd uintptr) bool {
		n, errno := rawRead(fd, r.p)
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			r.err = os.NewSyscallError("read", errno)
		case n == 0:
			r.end = true
		}
		r.done = n
		return true
	}
	w.once = func(fd uintptr) bool {
		for w.done < len(w.p) {
			n, errno := rawWrite(fd, w.p[w.done:])
			switch {
			case errno == syscall.EAGAIN:
				return false
			case errno != 0:
				w.err = os.NewSyscallError("write", errno)
				return true
			}
			w.done += n
		}
		return true
	}
	return q
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.TCPConn.Read(p)
	}
	return c.result("read", &c.read, p)
}

// largeWrite is how many bytes take the kernel long enough to have somebody watch over the call.
const largeWrite = 64 << 10

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) > largeWrite {
		return c.TCPConn.Write(p)
	}
	return c.result("write", &c.write, p)
}

// TryWrite writes as much of p as the socket takes at once, and returns how many bytes that were.
// After an error it returns 0: the next Write meets the error again.
func (c *Conn) TryWrite(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	of := &c.write
	of.mu.Lock()
	defer of.mu.Unlock()
	of.p, of.done = p, 0
	err := of.ready(c.tryOnce)
	of.p = nil
	if err != nil {
		return 0
	}
	return of.done
}

// IsSilent reports whether the connection is open and nothing has come that was not read. It must
// not be called by two goroutines at once.
func (c *Conn) IsSilent() bool {
	c.silent = false
	return c.raw.Control(c.listen) == nil && c.silent
}

// result makes a call, and returns what net.TCPConn would.
func (c *Conn) result(op string, of *call, p []byte) (int, error) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.p, of.done, of.end, of.err = p, 0, false, nil
	err := of.ready(of.once)
	of.p = nil
	switch {
	case err != nil: // a deadline, or the connection was closed
		if known := (*net.OpError)(nil); errors.As(err, &known) {
			known.Op = op
		}
	case of.end:
		err = io.EOF
	case of.err != nil:
		err = &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: of.err}
	}
	return of.done, err
}
