// The bytes under way in one direction of a connection.

package netproxy

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// queue is what is under way in one direction of one connection: bytes kept back, delayed or
// trickling.
type queue struct {
	conn *proxyConn
	way  *way
	to   *net.TCPConn

	mu      sync.Mutex
	room    *sync.Cond
	chunks  []chunk
	bytes   int
	running bool // a goroutine empties the queue
	done    sync.WaitGroup
}

type chunk struct {
	data []byte
	due  time.Time
}

var errDropped = errors.New("connection dropped by the proxy")

const queueLimit = 64 << 20

func newQueue(conn *proxyConn, w *way, to *net.TCPConn) *queue {
	q := &queue{conn: conn, way: w, to: to}
	q.room = sync.NewCond(&q.mu)
	return q
}

// empty reports whether everything put was written.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.running
}

// put takes a copy of data. It blocks while the queue is full.
func (q *queue) put(data []byte) {
	c := chunk{data: append([]byte(nil), data...), due: q.way.arrive(len(data))}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes > queueLimit {
		q.room.Wait()
	}
	q.chunks = append(q.chunks, c)
	q.bytes += len(data)
	if !q.running {
		q.running = true
		q.done.Go(q.run)
	}
}

// finish writes what is left and ends the destination's write side.
func (q *queue) finish() {
	q.done.Wait()
	_ = q.to.CloseWrite() // fails only when the connection has ended already
}

// run writes the chunks, each when it may go, until the queue is empty. When the destination takes
// no more, the rest of them is thrown away.
func (q *queue) run() {
	var err error
	for {
		c, ok := q.next()
		if !ok {
			return
		}
		if err == nil {
			err = q.write(c)
		}
	}
}

// next takes the first chunk; false when there is none, and the goroutine ends.
func (q *queue) next() (chunk, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room.Signal()
	if len(q.chunks) == 0 {
		q.running, q.chunks = false, nil
		return chunk{}, false
	}
	c := q.chunks[0]
	q.chunks = q.chunks[1:]
	q.bytes -= len(c.data)
	return c, true
}

// write waits until the chunk is due, then writes it as fast as it may go.
func (q *queue) write(c chunk) error {
	if err := waitUntil(c.due, q.conn.gone); err != nil {
		return err
	}
	for len(c.data) > 0 {
		n, err := q.allowed(len(c.data))
		if err != nil {
			return err
		}
		if _, err := q.to.Write(c.data[:n]); err != nil {
			return err
		}
		c.data = c.data[n:]
	}
	return nil
}

// allowed waits while the direction is held or throttled and returns how many of n bytes may be
// written now.
func (q *queue) allowed(n int) (int, error) {
	for {
		held, rate, changed := q.way.state()
		switch {
		case held:
			select {
			case <-changed:
			case <-q.conn.gone:
				return 0, errDropped
			}
		case rate > 0:
			const slices = 20 // per second
			n = min(n, max(1, rate/slices))
			pause := time.Duration(n) * time.Second / time.Duration(rate)
			return n, waitUntil(time.Now().Add(pause), q.conn.gone)
		default:
			return n, nil
		}
	}
}

// waitUntil returns at the moment, or with errDropped when gone is closed before (or up to 10 ms
// later). Go's own timers wait in whole milliseconds when nothing else happens, which would make a
// delay of 1 ms anything up to 2; so the thread sleeps through the end.
func waitUntil(moment time.Time, gone <-chan struct{}) error {
	const end = 10 * time.Millisecond
	if left := time.Until(moment); left > end {
		timer := time.NewTimer(left - end)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-gone:
			return errDropped
		}
	}
	for left := time.Until(moment); left > 0; left = time.Until(moment) {
		pause := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&pause, nil) //nolint:errcheck // cut short by a signal it goes on
	}
	return nil
}
