// The nap behind a commit, in which the reader is not woken for nothing.

package session

import (
	"sync"
	"syscall"
)

// nap keeps the reader asleep behind a commit. The walsender sends each message in a packet of its
// own: behind the last commit a keepalive, which says nothing that the commit has not said, and
// with the next one first its Begin, which says nothing before the row behind it has come. Each
// would wake the reader, and for a live event that costs more than all else that the reader does
// with it. So from a commit of events to the next report the kernel wakes it for more than these
// two. In a stream of hundreds a second that is nearly all the time, since there is a report every
// 10 ms (reportGap); in a slow one the report of each event ends its nap. Under TLS, which adds to
// each message, the reader sleeps through one of the two.
//
// No row waits: a Begin and any message that may follow it are more than napBytes, and so is what
// is left of a Begin that came in two pieces, with a row and a Commit. Inside a transaction there
// is no nap. What waits, a keepalive that may ask for a report, or one that the standbys' position
// waits for, waits for the next report, which the reporter writes every second at least, or for
// awaitStandbys. The end of the stream, and a deadline, wake the reader as ever. (Before Linux 4.18
// the end of a nap wakes nobody: what waits then comes with the next packet, an answer to what the
// reporter asks every third of wal_sender_timeout at the latest.)
type nap struct {
	sock syscall.RawConn  // nil: there is none
	set  func(fd uintptr) // sets mark; made once: one for each turn would be allocated

	mu   sync.Mutex // guards on, mark and err, and the socket's mark
	on   bool
	mark int // bytes
	err  error
}

// at names the socket; nil: there is none.
func (l *nap) at(sock syscall.RawConn) {
	l.sock = sock
	l.set = func(fd uintptr) { l.err = lowWater(fd, l.mark) }
}

// What is not worth a wake, and the least that is: bytes of a message CopyData.
const (
	copyHeader    = 1 + 4
	xlogHeader    = 1 + 8 + 8 + 8
	keepaliveSize = copyHeader + 1 + 8 + 8 + 1
	beginSize     = copyHeader + xlogHeader + 1 + 8 + 8 + 4
	napBytes      = keepaliveSize + beginSize + 1
)

// begin begins a nap. An error would be the connection's, and the next read has it too.
func (l *nap) begin() { l.turn(true) }

// end ends it: what has come meanwhile wakes the reader.
func (l *nap) end() { l.turn(false) }

func (l *nap) turn(on bool) {
	if l.sock == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on == on {
		return
	}
	l.mark = 1
	if on {
		l.mark = napBytes
	}
	if l.sock.Control(l.set) == nil && l.err == nil {
		l.on = on
	}
}
