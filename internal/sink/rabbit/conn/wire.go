// The socket under a connection. Its writes never block, so that a broker which does not read
// cannot hold up amqp091's locks.

package conn

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
)

// The bounds of one connection's write buffer. Publishers ask for room before they write, so the
// buffer stays below wireRoom plus one message of each lane.
const (
	wireRoom  = 256 << 10
	wireSpare = 4 * wireRoom // a buffer that grew further for a huge message is given back
	// wirePiece is how much is written at once: each piece of a huge message over a slow line
	// counts as progress.
	wirePiece = wireRoom
)

// closeFlush is how long a closing wire tries to write what is buffered, which is at least a
// close-ok.
const closeFlush = time.Second

// ErrWireClosed is the error of a write after the wire was closed or has failed. The method failure
// has the reason.
var ErrWireClosed = errors.New("connection closed")

// wire is a connection whose writes are gathered: Write appends to a buffer and returns, one
// flusher goroutine writes whatever has accumulated. amqp091 flushes once per message, which costs
// a system call (and a TLS record) each; here an idle connection still sends at once, and a busy
// one sends hundreds of messages per call. This is safe because nothing counts as delivered before
// its confirm: a late write error is only a lost connection.
//
// Write never blocks, so amqp091's locks are never held by a broker that does not read: heartbeats
// go on, and Close and every publisher return. Back-pressure is untilRoom, for which the publishers
// wait first.
//
// Reads carry a deadline of their own, since amqp091's goroutine that renews it is the one that
// writes heartbeats. There is no SetReadDeadline, for which amqp091 would wake that goroutine after
// each frame that it reads.
type wire struct {
	conn    net.Conn      // the socket, or TLS over it
	raw     net.Conn      // the socket itself; closing it never waits for a TLS alert
	silence time.Duration // how long a read may wait until the peer counts as dead
	// the deadline of a handshake or close, in Unix nanoseconds; 0 without one
	until atomic.Int64

	mu      sync.Mutex
	cond    sync.Cond // the flusher waits here for pending or closing
	pending []byte
	err     error // why the wire has failed; the first cause stays
	closing bool  // no further writes are taken; the flusher ends once pending is written
	// closed when buffered goes down; made by the first goroutine that waits for it
	room   chan struct{}
	direct *socket.Conn  // conn, for writes that do not wait; nil: with TLS, where a write may wait
	pause  time.Duration // directAfter

	buffered atomic.Int64 // len(pending) + what the flusher is writing
	// writing is since when the flusher has been in one write, in Unix nanoseconds; 0 when it is in
	// none.
	writing atomic.Int64
	wrote   atomic.Int64 // when the last write ended
	// working is since when amqp091 has been working on what it read last; 0 while it waits in
	// Read.
	working atomic.Int64
	Frozen  atomic.Bool // amqp091 once took longer than returnPatience
	// greeting is what was read first; the frame connection.start, as a rule
	greeting atomic.Pointer[[]byte]
	done     chan struct{} // closed when the flusher has ended and the socket is closed
}

// newWire wraps conn, whose socket is raw. Nothing is written before runFlusher runs.
func newWire(conn, raw net.Conn, silence time.Duration) *wire {
	w := &wire{conn: conn, raw: raw, silence: silence, pause: directAfter, done: make(chan struct{})}
	w.cond.L = &w.mu
	w.direct, _ = conn.(*socket.Conn)
	return w
}

// Write takes p. It sends what an idle socket takes at once, and buffers the rest. Its error is
// always ErrWireClosed, whatever the cause, so that nobody takes it for a fault of what was
// written.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return 0, ErrWireClosed
	}
	n := len(p)
	if w.isDirect() {
		if p = p[w.direct.TryWrite(p):]; len(p) == 0 {
			w.wrote.Store(time.Now().UnixNano())
			return n, nil
		}
	}
	w.pending = append(w.pending, p...)
	w.buffered.Add(int64(len(p)))
	w.cond.Signal()
	return n, nil
}

// isDirect reports whether a write may go to the socket directly: nothing is in the buffer or in
// the flusher's hands.
func (w *wire) isDirect() bool {
	return w.direct != nil && w.buffered.Load() == 0 && time.Now().UnixNano()-w.wrote.Load() >= int64(w.pause)
}

// runFlusher writes what is buffered. It returns when the wire is closed or broken, and closes the
// socket then.
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

// takePending waits for something to write and puts spare in its place. ok is false when the wire
// was closed and everything is written, or when it has failed.
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

// untilRoom returns a channel that is closed when there is room, or when there will be none because
// the wire closes.
func (w *wire) untilRoom() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.hasRoom() {
		return closedChan
	}
	if w.room == nil {
		w.room = make(chan struct{})
	}
	return w.room
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// writingFor returns for how long the flusher has been in one write.
func (w *wire) writingFor(now time.Time) time.Duration {
	since := w.writing.Load()
	if since == 0 {
		return 0
	}
	return now.Sub(time.Unix(0, since))
}

// fail ends the wire at once because of err: writes are refused, and reads and the flusher's write
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

// failure returns why the wire has failed, or nil.
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
		return err // it is closed already
	}
	return w.raw.SetWriteDeadline(time.Now().Add(closeFlush))
}

// returnPatience is below the 5 s after which amqp091 may give up handing on a return or an
// unblock. It may also give up when the process was suspended, even if the listener has room. A
// return that was dropped would be a lost event, because the broker acks returned messages.
const returnPatience = 4 * time.Second

// WasFrozen reports whether something that was read may have been dropped on its way to the
// listener. Then no answer that came over the wire can be trusted.
func (w *wire) WasFrozen(now time.Time) bool {
	since := w.working.Load()
	return w.Frozen.Load() || since != 0 && now.UnixNano()-since > int64(returnPatience)
}

// Read implements net.Conn. It waits at most for silence.
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
	if n > 0 && w.greeting.Load() == nil {
		greeting := bytes.Clone(p[:n])
		w.greeting.Store(&greeting)
	}
	w.working.Store(time.Now().UnixNano())
	return n, err
}

// allowRead sets the deadline of a read: limit, or the end of a handshake or close if that is
// earlier. Once Close has set a deadline, that one stays.
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

// SetDeadline bounds a handshake or a close. The zero time lifts the bound. Writes need no deadline
// because they do not block.
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

// directAfter is how long a connection must have been idle before a write goes directly to the
// socket. To wake the flusher would cost more than the system call, and would delay a live event.
// Within that time more is likely to come, and the flusher writes all of it at once.
const directAfter = 100 * time.Microsecond
