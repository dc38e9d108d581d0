// The short way of a write to an idle connection: from the goroutine that publishes, without the
// flusher's.

package conn

import (
	"net"
	"syscall"
	"time"
)

// directAfter is how long a connection has had nothing to write when a write takes the short way.
// Before that more is likely to come, and the flusher writes it at once with what has come
// meanwhile.
const directAfter = 100 * time.Microsecond

// direct writes to a socket what that takes without waiting. A wake of the flusher costs more than
// the system call, and a live event pays for it. Not under TLS, where a write may wait.
type direct struct {
	socket syscall.RawConn // nil: there is no short way
	p      []byte
	n      int
	write  func(fd uintptr) bool // made once
}

func (d *direct) on(conn, raw net.Conn) {
	c, ok := raw.(syscall.Conn)
	if !ok || conn != raw {
		return
	}
	socket, err := c.SyscallConn()
	if err != nil {
		return // closed: the flusher says so
	}
	d.socket = socket
	d.write = func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), d.p); err == nil {
			d.n = n
		}
		return true // one try
	}
}

// once says how many bytes of p are written. A fault is 0: what is left is the flusher's, which
// meets the same.
func (d *direct) once(p []byte) (n int) {
	d.p, d.n = p, 0
	err := d.socket.Write(d.write)
	d.p = nil
	if err != nil {
		return 0
	}
	return d.n
}
