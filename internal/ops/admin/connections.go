// A bound on connections, by which idle ones cannot lock out a probe.

package admin

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many a listener has open at once: file descriptors and memory are the
// relay's, too.
const maxConnections = 256

// connections closes the connection that has waited longest without a request in work, when one too
// many is open. To refuse the newest instead would let a client with many idle connections keep out
// the probes, upon which an orchestrator restarts a relay that works. A request is in work while it
// has a place in a room: a client that sends it slowly, or reads its answer slowly, is idle.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil: a request is in work
	waiting list.List                  // of net.Conn, the longest first
}

type connKey struct{}

type openKey struct{}

// inWork is what a request holds on to while it is in work.
type inWork struct {
	of   *connections
	conn net.Conn
}

// state is a http.Server's ConnState.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = c.waiting.PushBack(conn)
		if oldest := c.waiting.Front(); len(c.open) > maxConnections {
			c.forget(oldest.Value.(net.Conn))
			hangUp(oldest.Value.(net.Conn))
		}
	case http.StateIdle: // its answer is sent
		if at, open := c.open[conn]; open && at == nil {
			c.open[conn] = c.waiting.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	default: // working knows
	}
}

// working keeps a connection while its request has a place in a room, of which there are fewer than
// maxConnections. It is given up before the answer is sent, and before net/http reads the rest of a
// body that nobody asked for.
func (c *connections) working(conn net.Conn, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at, open := c.open[conn]; {
	case yes && at != nil:
		c.waiting.Remove(at)
		c.open[conn] = nil
	case !yes && open && at == nil:
		c.open[conn] = c.waiting.PushBack(conn)
	}
}

func (c *connections) forget(conn net.Conn) {
	if at := c.open[conn]; at != nil {
		c.waiting.Remove(at)
	}
	delete(c.open, conn)
}

// hangUp closes without TLS's farewell, which could wait for the other end.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// serve lets guard tell which connection is in work.
func (c *connections) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(net.Conn)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), openKey{}, inWork{c, conn})))
	})
}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}
