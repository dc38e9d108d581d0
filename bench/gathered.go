// The connection of the bare publisher: it writes as well as the relay's do.
package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// gatheredConn is a TCP connection whose writes are gathered, as the relay gathers its own: Write
// appends to a buffer and returns, one goroutine writes whatever has accumulated. amqp091 by itself
// makes a system call for each message, and a baseline that does so would flatter the relay. A
// write has no bound here: who publishes bounds what is unconfirmed.
type gatheredConn struct {
	net.Conn

	mu      sync.Mutex
	more    sync.Cond // the flusher waits here for pending or closing
	pending []byte
	// no further writes; the flusher writes what is pending, closes the socket and ends
	closing bool
}

const (
	dialTimeout  = 10 * time.Second
	closeFlush   = time.Second // for what is pending at Close
	gatheredOnce = 256 << 10   // written in one call; as wirePiece of the sink
	gatheredMost = 4 * gatheredOnce
)

// dialGathered is for amqp.Config.Dial. The flusher ends with Close, or when the connection breaks.
func dialGathered(network, addr string) (net.Conn, error) {
	socket, err := net.DialTimeout(network, addr, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c := &gatheredConn{Conn: socket}
	c.more.L = &c.mu
	go c.flush()
	return c, nil
}

// Write takes a copy of p.
func (c *gatheredConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return 0, net.ErrClosed
	}
	c.pending = append(c.pending, p...)
	c.more.Signal()
	return len(p), nil
}

// Close lets the flusher write what is pending, and does not wait for it.
func (c *gatheredConn) Close() error {
	c.end()
	if err := c.SetReadDeadline(time.Now()); err != nil {
		return err // closed already
	}
	return c.SetWriteDeadline(time.Now().Add(closeFlush))
}

func (c *gatheredConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.more.Signal()
}

func (c *gatheredConn) flush() {
	defer c.Conn.Close()
	defer c.end()
	var spare []byte
	for {
		batch := c.take(spare)
		if len(batch) == 0 {
			return
		}
		for rest := batch; len(rest) > 0; {
			n, err := c.Conn.Write(rest[:min(len(rest), gatheredOnce)])
			if err != nil {
				return
			}
			rest = rest[n:]
		}
		if spare = batch[:0]; cap(spare) > gatheredMost {
			spare = nil
		}
	}
}

// take waits for something to write and puts spare in its place; nothing is there when the
// connection was closed.
func (c *gatheredConn) take(spare []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) == 0 && !c.closing {
		c.more.Wait()
	}
	batch := c.pending
	c.pending = spare
	return batch
}
