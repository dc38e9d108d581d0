// A committed row, and what has become of it.

package checker

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// checking is the state of one Check.
type checking struct {
	h        History
	v        Verdict
	rows     map[string]*row
	phantoms map[string]bool
	// number of the latest row of each ordering group that has arrived
	last    map[groupIn]int64
	highest map[groupIn]event.Position // of all first arrivals; the ordering group without its key
}

// groupIn is a key within an exchange or topic: that is where its order is kept. It means something
// within a queue and within a partition only.
type groupIn struct {
	aggregate, key, exchangeOrTopic string
	from                            kafkaserver.TopicPartition
}

// row is a committed row and what has become of it.
type row struct {
	Row
	first    int // index in Deliveries; -1: nothing
	position event.Position
	plain    bool // it came at least once as what it is, not as the replay of a dead letter
	altered  bool
	moved    bool
	retryRow *RetryRow // nil: it is not in the retry table
	stays    []*Stay
}

// at notes where a witness has seen the row: each must say the same. Messages without a position
// are passed over.
func (r *row) at(p event.Position, c *checking) {
	switch none := (event.Position{}); {
	case r.position == none:
		r.position = p
	case p != none && p != r.position && !r.moved && !c.h.NewPositions:
		r.moved = true
		c.v.Moved = append(c.v.Moved, r.ID)
	}
}

func (c *checking) phantom(id string) {
	if !c.phantoms[id] {
		c.phantoms[id] = true
		c.v.Phantom = append(c.v.Phantom, id)
	}
}
