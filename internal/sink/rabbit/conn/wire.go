// The socket under a connection, with writes that never block.

package conn

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of one connection's write buffer. Publishers ask for room before they write, so what is
// buffered stays below wireRoom plus one message of each of its lanes.
const (
	wireRoom  = 256 << 10
	wireSpare = 4 * wireRoom // a buffer that grew past this for a huge message is given back
	// written at once: a huge message over a slow line is progress, piece by piece
	wirePiece = wireRoom
)

// closeFlush bounds how long a closing wire tries to write what is buffered, which is at least a
// close-ok.
const closeFlush = time.Second

// ErrWireClosed is the error of a write after the wire was closed or has failed; failure has
// the reason.
var ErrWireClosed = errors.New("connection closed")

// wire is a connection whose writes are gathered: Write appends to a buffer and returns, one
// flusher goroutine writes whatever has accumulated. amqp091 flushes once per message, which costs
// a system call (and a TLS record) each; here an idle connection still sends at once, and a busy
// one sends hundreds of messages per call. This is safe because nothing counts as delivered before
// its confirm: a late write error is only a lost connection.
//
// Write never blocks, so amqp091's locks are never held by a broker that does not read: heartbeats
// go on, and Close and every publisher return. Back-pressure is waitRoom, which the publishers call
// first.
//
// Reads carry a deadline of their own, since amqp091's goroutine that renews it is the one that
// writes heartbeats. There is no SetReadDeadline, for which amqp091 would wake that goroutine after
// each frame that it reads.
type wire struct {
	conn    net.Conn      // the socket, or TLS over it
	raw     net.Conn      // the socket itself: closing it never waits for a TLS alert
	silence time.Duration // a read that waits longer than this is a dead peer
	until   atomic.Int64  // the deadline of a handshake or close in Unix nanoseconds, 0 for none

	mu      sync.Mutex
	cond    sync.Cond // the flusher waits here for pending or closing
	pending []byte
	err     error         // why the wire failed; the first cause stays
	closing bool          // no further writes; the flusher ends once pending is written
	room    chan struct{} // closed when buffered went down; made by who waits for it
	direct  directWriter
	pause   time.Duration // directAfter

	buffered atomic.Int64 // len(pending) + what the flusher is writing
	// since when the flusher has been in one write, Unix nanoseconds; 0: it is not
	writing atomic.Int64
	wrote   atomic.Int64 // when the last write ended
	// since when amqp091 has been working on what was read last; 0: it waits in Read
	working atomic.Int64
	Frozen  atomic.Bool   // that once took longer than returnPatience
	done    chan struct{} // closed when the flusher has ended and the socket is closed
}

// newWire wraps conn, of which raw is the socket. run must be started for anything to be written.
func newWire(conn, raw net.Conn, silence time.Duration) *wire {
	w := &wire{conn: conn, raw: raw, silence: silence, pause: directAfter, done: make(chan struct{})}
	w.cond.L = &w.mu
	w.direct.useSocket(conn, raw)
	return w
}

// Write buffers p, or what an idle socket does not take at once of it. The error is ErrWireClosed,
// whatever the cause: nobody takes it for a fault of what was written.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return 0, ErrWireClosed
	}
	n := len(p)
	if w.isDirect() {
		if p = p[w.direct.writeOnce(p):]; len(p) == 0 {
			w.wrote.Store(time.Now().UnixNano())
			return n, nil
		}
	}
	w.pending = append(w.pending, p...)
	w.buffered.Add(int64(len(p)))
	w.cond.Signal()
	return n, nil
}

// isDirect reports whether a write may take the short way: nothing is before it, in the buffer or
// in the flusher's hands.
func (w *wire) isDirect() bool {
	return w.direct.socket != nil && w.buffered.Load() == 0 && time.Now().UnixNano()-w.wrote.Load() >= int64(w.pause)
}

// runFlusher is the flusher. It returns when the wire is closed or broken, and closes the socket
// then.
func (w *wire) runFlusher() {
	defer close(w.done)
	var spare []byte
	for {
		batch, ok := w.takePending(spare)
		if !ok {
			_ = w.conn.Close() // after fail it is closed already
			return
		}
		if err := w.flush(batch); err != nil {
			w.fail(err)
			return
		}
		w.wakeWaiters()
		if spare = batch[:0]; cap(spare) > wireSpare {
			spare = nil
		}
	}
}

// flush writes a batch, piece by piece.
func (w *wire) flush(batch []byte) error {
	defer w.buffered.Add(-int64(len(batch)))
	defer w.writing.Store(0)
	for piece := range slices.Chunk(batch, wirePiece) {
		w.writing.Store(time.Now().UnixNano())
		if _, err := w.conn.Write(piece); err != nil {
			return err
		}
		w.wrote.Store(time.Now().UnixNano())
	}
	return nil
}

// takePending waits for something to write and puts spare in its place; ok is false when the wire
// has been closed and all is written, or has failed.
func (w *wire) takePending(spare []byte) (batch []byte, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) == 0 && !w.closing {
		w.cond.Wait()
	}
	if len(w.pending) == 0 {
		return nil, false
	}
	batch, w.pending = w.pending, spare
	return batch, true
}

// wakeWaiters wakes the goroutines that wait for room, after buffered went down.
func (w *wire) wakeWaiters() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// hasRoom reports whether a publisher may write now.
func (w *wire) hasRoom() bool { return w.buffered.Load() < wireRoom }

// waitRoom waits until hasRoom, ctx is done or gone is closed.
func (w *wire) waitRoom(ctx context.Context, gone <-chan struct{}) {
	for !w.hasRoom() {
		w.mu.Lock()
		if w.closing {
			w.mu.Unlock()
			return
		}
		if w.room == nil {
			w.room = make(chan struct{})
		}
		room := w.room
		w.mu.Unlock()
		if w.hasRoom() {
			return
		}
		select {
		case <-room:
		case <-ctx.Done():
			return
		case <-gone:
			return
		}
	}
}

// writingFor returns how long the flusher has been in one write.
func (w *wire) writingFor(now time.Time) time.Duration {
	since := w.writing.Load()
	if since == 0 {
		return 0
	}
	return now.Sub(time.Unix(0, since))
}

// fail ends the wire at once because of err: writes are refused, reads and the flusher's write
// return.
func (w *wire) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.buffered.Add(-int64(len(w.pending)))
	w.closing, w.pending = true, nil
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
	w.cond.Signal()
	w.mu.Unlock()
	_ = w.raw.Close()
}

// failure is why the wire failed, nil when it did not.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close refuses further writes, gives the flusher closeFlush for what is buffered, and returns
// without waiting for it: amqp091 calls it with its locks held.
func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	w.cond.Signal()
	if err := w.raw.SetReadDeadline(time.Now()); err != nil {
		return err // closed already
	}
	return w.raw.SetWriteDeadline(time.Now().Add(closeFlush))
}

// returnPatience is below the 5 s after which amqp091 may give up handing on a return or an
// unblock. It may also do so when the process was suspended, even if the listener has room. A
// return that was dropped would be a lost event, because the broker acks returned messages.
const returnPatience = 4 * time.Second

// WasFrozen reports whether something that was read may have been dropped on its way to us. Then no
// answer that came over the wire can be trusted.
func (w *wire) WasFrozen(now time.Time) bool {
	since := w.working.Load()
	return w.Frozen.Load() || since != 0 && now.UnixNano()-since > int64(returnPatience)
}

// Read reads, at most for silence.
func (w *wire) Read(p []byte) (int, error) {
	now := time.Now()
	if w.WasFrozen(now) {
		w.Frozen.Store(true)
	}
	w.working.Store(0)
	if err := w.allowRead(now.Add(w.silence)); err != nil {
		return 0, err
	}
	n, err := w.conn.Read(p)
	w.working.Store(time.Now().UnixNano())
	return n, err
}

// allowRead sets the deadline of a read, unless Close has set it for good: silence, or the end of a
// handshake or close.
func (w *wire) allowRead(limit time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return nil
	}
	if until := w.until.Load(); until != 0 && until < limit.UnixNano() {
		limit = time.Unix(0, until)
	}
	return w.raw.SetReadDeadline(limit)
}

// SetDeadline bounds a handshake or a close; the zero time lifts it. Writes need none: they do not
// block.
func (w *wire) SetDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.IsZero() {
		w.until.Store(0)
		return nil
	}
	w.until.Store(t.UnixNano())
	return w.raw.SetReadDeadline(t)
}

// directAfter is how long a connection must have been idle before a write goes direct. Before that
// more is likely to come, and the flusher writes all of it at once.
const directAfter = 100 * time.Microsecond

// directWriter writes to a socket as much as it takes without waiting. Waking the flusher costs
// more than the system call, and delays a live event. Not under TLS, where a write may wait.
type directWriter struct {
	socket  syscall.RawConn // nil: no direct writes
	buf     []byte
	written int
	write   func(fd uintptr) bool // made once
}

func (d *directWriter) useSocket(conn, raw net.Conn) {
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
		if n, err := syscall.Write(int(fd), d.buf); err == nil {
			d.written = n
		}
		return true // one try
	}
}

// writeOnce returns how many bytes of p were written. After an error it is 0: the flusher writes
// the rest and meets the same error.
func (d *directWriter) writeOnce(p []byte) (n int) {
	d.buf, d.written = p, 0
	err := d.socket.Write(d.write)
	d.buf = nil
	if err != nil {
		return 0
	}
	return d.written
}
