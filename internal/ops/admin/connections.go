// The bound on open connections.

package admin

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns is how many connections the admin server keeps. They are files of the process, of which the relay needs some for
// PostgreSQL and the broker, and memory. Whoever asks for health or metrics beside many that ask nothing is answered.
const maxConns = 256

// conns bounds the connections of a server: the one that has waited for a request the longest makes room for a new one. It may
// wait for the first request, for the rest of one that comes slowly, or for the next. When all are being answered the new one
// has to go.
type conns struct {
	max int

	mu      sync.Mutex
	open    int
	waiting map[net.Conn]time.Time // since when
}

func newConns(limit int) *conns { return &conns{max: limit, waiting: make(map[net.Conn]time.Time)} }

// state is http.Server.ConnState. To the server a request is one when its header was read.
func (c *conns) state(conn net.Conn, state http.ConnState) {
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

// makeRoom closes the one that has waited the longest. The server counts it out when it has noticed.
func (c *conns) makeRoom() {
	var longest net.Conn
	for conn, since := range c.waiting {
		if longest == nil || since.Before(c.waiting[longest]) {
			longest = conn
		}
	}
	delete(c.waiting, longest)
	_ = longest.Close() // its reads fail, which ends it
}
