// One connection through a proxy.

package netproxy

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// proxyConn is one connection through a Proxy.
type proxyConn struct {
	proxy  *Proxy
	client *net.TCPConn

	mu     sync.Mutex
	server *net.TCPConn
	closed bool
	gone   chan struct{} // closed by close
}

func (c *proxyConn) run(target string, report func(flush pglogrepl.LSN), spoil []byte, hideIDs bool) {
	defer c.close(false)
	c.unstalled()
	server, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		return // the server refuses: the client sees its connection closed
	}
	if !c.setServer(server.(*net.TCPConn)) {
		server.Close()
		return
	}
	var up io.Reader = c.client
	if report != nil {
		up = &reportReader{from: c.client, report: report}
	}
	if spoil != nil {
		up = &spoiler{from: up, text: spoil}
	}
	var down io.Reader = c.server
	if hideIDs {
		down = &idHider{from: c.server}
	}
	var both sync.WaitGroup
	both.Go(func() { c.forward(c.proxy.ways[Up], up, c.server) })
	both.Go(func() { c.forward(c.proxy.ways[Down], down, c.client) })
	both.Wait()
}

func (c *proxyConn) setServer(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
	return !c.closed
}

// close ends both sides; with a reset instead of an orderly end if asked.
func (c *proxyConn) close(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.gone)
	for _, conn := range []*net.TCPConn{c.client, c.server} {
		if conn == nil {
			continue
		}
		if reset {
			_ = conn.SetLinger(0) //nolint:errcheck // it fails only when the connection has ended already
		}
		conn.Close()
	}
}

// forward copies one direction until its source ends, then ends the destination's write side. A
// connection whose client has died is read to its end by each direction alone: bytes kept back are
// not lost because the other direction failed.
//
// While nothing is set it reads and writes in this one goroutine, which costs least. Otherwise the
// bytes go through a queue, emptied by a goroutine that lives as long as there is something in it.
// The queue is left only when it is empty, so nothing is overtaken.
func (c *proxyConn) forward(w *way, from io.Reader, to *net.TCPConn) {
	q := newQueue(c, w, to)
	defer q.finish()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		c.unstalled()
		if n > 0 {
			if w.slow.Load() || !q.empty() {
				q.put(buf[:n])
			} else if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// unstalled returns when connections are not stalled, or this one is gone.
func (c *proxyConn) unstalled() {
	c.proxy.mu.Lock()
	stalled := c.proxy.stalled
	c.proxy.mu.Unlock()
	select {
	case <-stalled:
	case <-c.gone:
	}
}
