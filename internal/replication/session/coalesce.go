// Read coalescing: the reader waits for rows to accumulate where that delays nobody.

package session

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Coalescer paces the reads of the replication connection. The walsender writes each row to its
// socket by itself. A reader that takes each row at once is woken for each row. That costs the
// walsender more than the row itself: 3 microseconds a row become 10, and 50 on a busy machine,
// where the reader takes the processor from the walsender every time. So the reader lets bytes
// accumulate before a read (see gatherBytes), where that delays nothing:
//
//   - inside a transaction of which many rows have come already: the server sends nothing else
//     before the rest of it;
//   - when what comes is late already: it was committed long before it was sent, and becomes later
//     by a small part of that.
//
// No pause is longer than it takes enough bytes to come, so the pauses bound no throughput. What
// has come is read before the next: a read under TLS brings one record, which may be a single row.
// While the stream keeps up with the commits, and in a small transaction, there is no pause.
//
// Unless noted otherwise, fields belong to the goroutine that reads.
type Coalescer struct {
	from  io.Reader
	sock  syscall.RawConn // under from, to wait on; nil: there is none
	total atomic.Uint64   // bytes read, for the check whether the server is silent

	frames int // frames read of the open transaction, counted by the reader; 0 outside one
	// the time from the newest transaction's commit to the sending of its Begin, by the server's
	// clock; set by the reader
	lateness time.Duration
	// bytes that lay at the socket when the last pause ended, less those read since
	bytesThere    int
	lastSmall     bool   // the last read brought less than coalesceSmall
	beforeRead    func() // called before each read; nil: nothing is called
	inTransaction bool   // inside a transaction; set by the reader
	// a transaction with events was closed since the last read; set by the reader
	eventsClosed bool

	nap nap // ended by the reporter, too
}

const (
	// Rows that are this late when they are sent come from a backlog, and may become later by this
	// fraction. The lateness decides, not the rate of the rows: on a busy machine a reader that
	// reads too often keeps the rate down itself, for ever.
	coalesceLate         = 20 * time.Millisecond
	coalesceLatePart     = 10
	coalesceLateMaxPause = 10 * time.Millisecond
	coalesceLateEnough   = source.ReadBuffer // bytes that end the pause

	// In a transaction the pause grows with the number of rows that have come, and so with the time
	// that they took: a transaction of any size is delayed by a fraction of its own duration.
	coalesceFrames     = 32 // no pause before
	coalesceFramePause = 10 * time.Microsecond
	coalesceMaxPause   = 3 * time.Millisecond
	coalesceEnough     = 128 << 10
	coalesceSmall      = 32 << 10 // a read of as many bytes is followed by another at once
)

// ConnectCoalesced opens a replication connection with coalesced reads.
func ConnectCoalesced(ctx context.Context, c *source.Config) (*pgconn.PgConn, *Coalescer, error) {
	var pace *Coalescer // of the last address that was tried, which is the one that is connected
	conn, err := source.ConnectReplication(ctx, c, func(r io.Reader, sock syscall.RawConn) io.Reader {
		if !hasMark {
			sock = nil
		}
		pace = &Coalescer{from: r, sock: sock}
		pace.nap.setSocket(sock)
		return pace
	})
	return conn, pace, err
}

// Read pauses when it is worth it, then reads what has come.
func (c *Coalescer) Read(p []byte) (int, error) {
	if c.beforeRead != nil {
		c.beforeRead()
	}
	enough, pause := c.nextPause()
	if c.eventsClosed && !c.inTransaction && pause == 0 {
		c.nap.beginNap()
	} else {
		c.nap.endNap()
	}
	c.eventsClosed = false
	if pause > 0 {
		if err := c.gatherBytes(enough, pause); err != nil {
			return 0, err
		}
	}
	n, err := c.from.Read(p)
	c.total.Add(uint64(n))
	c.bytesThere -= n
	c.lastSmall = n < coalesceSmall
	return n, err
}

// nextPause returns how long bytes may accumulate before the next read (0: no pause), and how many
// bytes end the pause earlier.
func (c *Coalescer) nextPause() (enough int, _ time.Duration) {
	switch {
	case c.bytesThere > 0:
		return 0, 0
	case c.lateness >= coalesceLate:
		return coalesceLateEnough, min(c.lateness/coalesceLatePart, coalesceLateMaxPause)
	case c.lastSmall && c.frames >= coalesceFrames:
		return coalesceEnough, min(time.Duration(c.frames)*coalesceFramePause, coalesceMaxPause)
	}
	return 0, 0
}

// gatherBytes waits until enough bytes have come, or for pause. Without a socket to wait on nobody
// knows how many have come: then it is a shorter sleep, and none after a read that brought much.
func (c *Coalescer) gatherBytes(enough int, pause time.Duration) (err error) {
	if c.sock != nil {
		c.bytesThere, err = waitForBytes(c.sock, enough, pause)
	} else if c.lastSmall {
		time.Sleep(min(pause, coalesceMaxPause))
		c.bytesThere = coalesceSmall
	}
	return err
}

// nap keeps the reader asleep after a commit. The walsender sends each message in a packet of its
// own: after the last commit a keepalive, which says nothing that the commit has not said, and with
// the next transaction first its Begin, which says nothing before the row behind it has come. Each
// would wake the reader, and for a live event that costs more than all else that the reader does
// with it. So from a commit with events to the next report the kernel wakes the reader only for
// more bytes than these two have. In a stream of hundreds of events a second that is nearly always,
// since there is a report every 10 ms (reportGap). In a slow stream the report of each event ends
// its nap. TLS adds bytes to each message, so there the reader sleeps through one of the two.
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

	mu   sync.Mutex // guards the fields below, and the socket's low-water mark
	on   bool       // the reader naps: the socket's mark is napBytes
	mark int        // for set: how many bytes wake the reader
	err  error      // of set
}

// setSocket names the socket; nil: there is none.
func (l *nap) setSocket(sock syscall.RawConn) {
	l.sock = sock
	l.set = func(fd uintptr) { l.err = socket.SetLowWater(fd, l.mark) }
}

// Sizes, in bytes, of the two messages that are not worth a wake, and the least that is
// (TestNapIsNoLongerThanABeginAndAnythingMore).
const (
	copyHeader    = 1 + 4
	xlogHeader    = 1 + 8 + 8 + 8
	keepaliveSize = copyHeader + 1 + 8 + 8 + 1
	beginSize     = copyHeader + xlogHeader + 1 + 8 + 8 + 4
	napBytes      = keepaliveSize + beginSize + 1
)

// beginNap begins a nap. An error would be the connection's, and the next read has it too.
func (l *nap) beginNap() { l.setMark(true) }

// endNap ends the nap: what has come meanwhile wakes the reader.
func (l *nap) endNap() { l.setMark(false) }

// setMark switches the nap on or off.
func (l *nap) setMark(on bool) {
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
