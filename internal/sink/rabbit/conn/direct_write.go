// A direct write to an idle connection, from the goroutine that publishes instead of the flusher's.

package conn

import (
	"net"
	"syscall"
	"time"
)

// directAfter is how long a connection must have been idle before a write goes direct. Before that
// more is likely to come, and the flusher writes all of it at once.
const directAfter = 100 * time.Microsecond

// direct writes to a socket as much as it takes without waiting. Waking the flusher costs more than
// the system call, and delays a live event. Not under TLS, where a write may wait.
type direct struct {
	socket syscall.RawConn // nil: no direct writes
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
		return // closed: the flusher reports it
	}
	d.socket = socket
	d.write = func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), d.p); err == nil {
			d.n = n
		}
		return true // one try
	}
}

// once returns how many bytes of p were written. After an error it is 0: the flusher writes the
// rest and meets the same error.
func (d *direct) once(p []byte) (n int) {
	d.p, d.n = p, 0
	err := d.socket.Write(d.write)
	d.p = nil
	if err != nil {
		return 0
	}
	return d.n
}
