package replication

import (
	"io"
	"sync/atomic"
	"syscall"
	"time"
)

// gulp paces the reads of the replication connection. The walsender writes each row to its socket by itself; a reader that
// takes each at once is woken for each, which costs the walsender more than the row: 3 microseconds a row become 10, and 50
// on a busy machine, where the reader takes the processor from it every time. So the reader lets a gulp come together
// first, where that delays nobody:
//
//   - inside a transaction of which many rows have come already: the server sends nothing else before the rest of it;
//   - when what comes is late already: committed long before it was sent, and made later by a small part of that.
//
// While the stream keeps up with the commits, and in a small transaction, it never pauses.
//
// Fields without a word on it belong to the goroutine that reads.
type gulp struct {
	from  io.Reader
	sock  syscall.RawConn // under from, to wait on; nil: only time tells
	total atomic.Uint64   // bytes read, for whoever asks whether the server is silent

	frames int           // that have come of the open transaction; 0 outside one. The reader counts them
	late   time.Duration // from the newest transaction's commit to the sending of its Begin, by the server's clock. The reader says so
	small  bool          // the last read was
	before func()        // is called before each read; nil: nothing is
	open   bool          // a transaction is. The reader says so
	closed bool          // one with events was closed since the last read. The reader says so

	lull lull // its end is also the reporter's
}

const (
	// What is as late as this when it is sent comes from a backlog, and may be late by so small a part more. Lateness tells,
	// and not the rate of the rows: on a busy machine an eager reader keeps the rate down by its own eagerness, for ever.
	gulpLate         = 20 * time.Millisecond
	gulpLatePart     = 10
	gulpLateMaxPause = 10 * time.Millisecond
	gulpLateEnough   = readBuffer // bytes: no pause is longer than it takes them to come

	// In a transaction the pause grows with what has come of it, and so with the time that this has taken: a transaction of
	// any size is late by a part of itself.
	gulpFrames     = 32 // no pause before
	gulpFramePause = 10 * time.Microsecond
	gulpMaxPause   = 3 * time.Millisecond
	gulpEnough     = 128 << 10
	gulpSmall      = 32 << 10 // a read of as many bytes was a gulp, and is followed by another at once
)

// Read pauses when it is worth it, then reads what has come.
func (g *gulp) Read(p []byte) (int, error) {
	if g.before != nil {
		g.before()
	}
	enough, pause := g.pause()
	if g.closed && !g.open && pause == 0 {
		g.lull.begin()
	} else {
		g.lull.end()
	}
	g.closed = false
	if pause > 0 {
		if err := g.gather(enough, pause); err != nil {
			return 0, err
		}
	}
	n, err := g.from.Read(p)
	g.total.Add(uint64(n))
	g.small = n < gulpSmall
	return n, err
}

// pause is for how long, at most, a gulp may come together before the next read, and for how many bytes.
func (g *gulp) pause() (enough int, _ time.Duration) {
	switch {
	case g.late >= gulpLate:
		return gulpLateEnough, min(g.late/gulpLatePart, gulpLateMaxPause)
	case g.small && g.frames >= gulpFrames:
		return gulpEnough, min(time.Duration(g.frames)*gulpFramePause, gulpMaxPause)
	}
	return 0, 0
}

// gather waits until enough bytes have come, or for pause.
func (g *gulp) gather(enough int, pause time.Duration) error {
	if g.sock == nil {
		time.Sleep(pause)
		return nil
	}
	return gather(g.sock, enough, pause)
}
