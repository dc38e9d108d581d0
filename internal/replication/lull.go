package replication

import (
	"sync"
	"syscall"
)

// lull keeps the reader asleep behind a commit. The walsender sends each message in a packet of its own: behind the last
// commit a keepalive, which says nothing that the commit has not said, and with the next one first its Begin, which says
// nothing before the row behind it has come. Each would wake the reader, and for a live event that costs more than all else
// that the reader does with it. So from a commit of events to the next report the kernel wakes it for more than these two.
// In a stream of hundreds a second that is nearly all the time, for there is a report every 10 ms (reportGap); in a slow one the
// report of each event ends its lull. Under TLS, which adds to each message, the reader sleeps through one of the two.
//
// No row waits: a Begin and any message that may follow it are more than lullBytes, and so is what is left of a Begin that came in two
// pieces with a row and a Commit. Inside a transaction there is no lull. What
// waits, a keepalive that may ask for a report, waits for the next report, which the reporter writes every second at least. The end
// of the stream, and a deadline, wake the reader as ever. (Before Linux 4.18 the end of a lull wakes nobody: what waits then comes with
// the next packet, an answer to what the reporter asks every third of wal_sender_timeout at the latest.)
type lull struct {
	sock syscall.RawConn  // nil: there is none
	set  func(fd uintptr) // sets mark; made once, since each of its own would be allocated

	mu   sync.Mutex // guards on, mark and err, and the socket's mark
	on   bool
	mark int // bytes
	err  error
}

// at says of which socket; nil: of none.
func (l *lull) at(sock syscall.RawConn) {
	l.sock = sock
	l.set = func(fd uintptr) { l.err = lowWater(fd, l.mark) }
}

// What is not worth a wake, and the least that is.
const (
	copyHeader = 1 + 4
	beginSize  = copyHeader + xlogHeader + 1 + 8 + 8 + 4
	lullBytes  = copyHeader + keepaliveSize + beginSize + 1
)

// begin begins a lull. An error would be the connection's, and the next read has it too.
func (l *lull) begin() { l.turn(true) }

// end ends it: what has come meanwhile wakes the reader.
func (l *lull) end() { l.turn(false) }

func (l *lull) turn(on bool) {
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
		l.mark = lullBytes
	}
	if l.sock.Control(l.set) == nil && l.err == nil {
		l.on = on
	}
}
