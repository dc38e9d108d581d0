// The end of a connection that is idle.

package conn

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// idle is the socket of a connection that is idle. To ask the kernel before a request costs one
// system call; a goroutine that watches meanwhile costs its start and two wakes.
type idle struct {
	sock  syscall.RawConn
	asked [1]unix.PollFd
	ask   func(fd uintptr) // made once: one for each question would be allocated
	quiet bool
}

// at names the connection; it has a socket unless a test made it.
func (i *idle) at(c net.Conn) (err error) {
	if s, ok := c.(syscall.Conn); ok {
		i.sock, err = s.SyscallConn()
	}
	i.ask = func(fd uintptr) {
		i.asked[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		n, err := unix.Poll(i.asked[:], 0)
		for err == unix.EINTR { // a signal, such as Go's own
			n, err = unix.Poll(i.asked[:], 0)
		}
		i.quiet = n == 0 && err == nil
	}
	return err
}

// holds reports whether the connection has not ended and nothing has come: between an answer and
// the next request the broker sends nothing.
func (i *idle) holds() bool {
	if i.sock == nil {
		return true
	}
	return i.sock.Control(i.ask) == nil && i.quiet
}

// Watch watches the connection while no request is under way. When the broker ends it, or sends
// bytes without a request, Watch closes the connection and signals ended, which has room for one
// signal. unwatch ends the watch and must be called before the next request.
func (c *Conn) Watch(ended chan<- struct{}) (unwatch func()) {
	var unwatched atomic.Bool
	done := make(chan struct{})
	failed := c.net.SetReadDeadline(time.Time{}) // the last request's deadline is still set
	go func() {
		defer close(done)
		if failed == nil {
			_, _ = c.reader.Peek(1) //nolint:errcheck // a deadline is unwatch's; after anything else the connection is useless
		}
		if !unwatched.Load() {
			c.Close()
			Notify(ended)
		}
	}()
	return func() {
		unwatched.Store(true)
		if err := c.net.SetReadDeadline(time.Unix(1, 0)); err != nil {
			c.Close() // it ends the wait, too
		}
		<-done
	}
}

// Notify signals a channel with room for one.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
