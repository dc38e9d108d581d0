// The bound on open connections.

package admin

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConnections is how many connections the admin server keeps. Each takes memory and a file
// descriptor, which the relay needs for PostgreSQL and the broker. Probes and scrapes are answered
// even when many clients stay connected and ask nothing.
const maxConnections = 256

// connections bounds the connections of a server: the one that has waited for a request the longest
// makes room for a new one. It may wait for the first request, for the rest of one that comes
// slowly, or for the next. When all are being answered the new one has to go.
type connections struct {
	max int

	mu      sync.Mutex
	open    int
	waiting map[net.Conn]time.Time // since when
}

func newConnections(limit int) *connections {
	return &connections{max: limit, waiting: make(map[net.Conn]time.Time)}
}

// state is http.Server.ConnState. To the server a request is one when its header was read.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.waiting[conn] = time.Now()
		if c.open++; c.open > c.max {
			c.makeRoom()
		}
	case http.StateIdle:
		c.waiting[conn] = time.Now()
	case http.StateActive:
		delete(c.waiting, conn)
	case http.StateHijacked, http.StateClosed:
		c.open--
		delete(c.waiting, conn)
	}
}

// makeRoom closes the one that has waited the longest. The server counts it out when it has
// noticed.
func (c *connections) makeRoom() {
	var longest net.Conn
	for conn, since := range c.waiting {
		if longest == nil || since.Before(c.waiting[longest]) {
			longest = conn
		}
	}
	delete(c.waiting, longest)
	_ = longest.Close() // its reads fail, which ends it
}
