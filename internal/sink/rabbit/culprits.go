// Culprits: the events, destinations and sizes because of which the broker closed something.

package rabbit

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

const (
	// maxCulprits bounds what is remembered; beyond it culprits are found again by sending.
	maxCulprits = 1024
	// culpritsAge is how long all of them are remembered after the last one was found. Most of them
	// never come again, and while one is known each event is looked up.
	culpritsAge = time.Hour
)

// culprits are the events, the destinations and the size because of which the broker closed a
// channel or a connection. An event that belongs to a culprit is sent alone, so that no other event
// is affected: see lane.batch. Any answer to it other than an exception removes the culprit.
type culprits struct {
	count atomic.Int32 // zero spares the lanes the lock
	mu    sync.Mutex
	known map[culprit]bool // true: it closes connections, so it is sent on a private one
	limit int              // the body's size that the broker named last; 0: none
	found time.Time        // when the last one was
}

// culprit is an event, an exchange (whole), or a pair of exchange and routing key.
type culprit struct {
	event event.Position
	whole bool
	pair
}

// pair is an exchange and a routing key.
type pair struct{ exchange, routingKey string }

// clone owns its strings, which may alias an event.
func (p pair) clone() pair {
	return pair{strings.Clone(p.exchange), strings.Clone(p.routingKey)}
}

// candidates are the culprits that an event may belong to.
func candidates(pos event.Position, at pair) [3]culprit {
	return [3]culprit{{event: pos}, {whole: true, pair: pair{exchange: at.exchange}}, {pair: at}}
}

// find reports whether an event belongs to a culprit, or has a body over the limit; private says
// that it closes connections.
func (c *culprits) find(pos event.Position, at pair, size int) (known, private bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.found) > culpritsAge {
		c.known, c.limit = nil, 0
		c.counted()
	}
	known = c.limit > 0 && size > c.limit
	for _, k := range candidates(pos, at) {
		closes, is := c.known[k]
		known, private = known || is, private || closes
	}
	return known, private
}

func (c *culprits) add(k culprit, private bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCulprits {
		c.known = map[culprit]bool{}
	}
	k.pair = k.pair.clone()
	c.known[k], c.found = private, time.Now()
	c.counted()
}

func (c *culprits) setLimit(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit, c.found = bytes, time.Now()
	c.counted()
}

// forget removes the culprits of an event and of its destination.
func (c *culprits) forget(pos event.Position, at pair, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range candidates(pos, at) {
		delete(c.known, k)
	}
	if size > c.limit {
		c.limit = 0
	}
	c.counted()
}

// counted updates count.
func (c *culprits) counted() {
	c.count.Store(int32(len(c.known) + min(c.limit, 1)))
}
