// The rules of the retry table: each committed event is at the broker or in exactly one of the two
// tables. Only what was sent again after a crash or a leader change is in both places; it counts
// as a duplicate, which it becomes.

package checker

import (
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// retryTable adds what the tables have and had to the rows.
func (c *checking) retryTable() {
	ids := map[event.Position]string{} // of dead letters that were purged
	for i := range c.h.Stays {
		stay := &c.h.Stays[i]
		ids[stay.Position] = stay.ID
		if r := c.rows[stay.ID]; r != nil {
			r.stays = append(r.stays, stay)
			r.at(stay.Position, c)
		}
	}
	for i := range c.h.RetryTable {
		s := &c.h.RetryTable[i]
		id := s.ID
		if id == "" {
			id = ids[s.Position]
		}
		r := c.rows[id]
		switch {
		case r == nil && s.State == Purged:
		case r == nil:
			c.phantom(id)
		case r.retryRow != nil:
			c.v.InTwo = append(c.v.InTwo, id)
		default:
			r.retryRow = s
			r.at(s.Position, c)
		}
	}
}

// wasDeadLetter reports whether a replay of the row is not one out of nothing.
func (r *row) wasDeadLetter() bool {
	return r.retryRow != nil && (r.retryRow.State == Replayed || r.retryRow.State == Open || r.retryRow.State == Purged)
}

// settled says of each row where it is.
func (c *checking) settled() {
	for _, committed := range c.h.Committed {
		r := c.rows[committed.ID]
		arrived := r.first >= 0
		if r.retryRow == nil {
			if !arrived {
				c.v.Lost = append(c.v.Lost, r.ID)
			}
			continue
		}
		both := arrived
		switch r.retryRow.State {
		case Deferred:
			c.v.Deferred = append(c.v.Deferred, r.ID)
		case Open:
			c.v.Dead = append(c.v.Dead, r.ID)
		case Replayed:
			c.v.Replayed = append(c.v.Replayed, r.ID)
			both = r.plain
			if !arrived {
				c.v.Lost = append(c.v.Lost, r.ID)
			}
		case Discarded:
			c.v.Discarded = append(c.v.Discarded, r.ID)
		case Purged:
			c.v.Discarded = append(c.v.Discarded, r.ID)
			both = false // a dead letter that was replayed, perhaps
		}
		if both {
			c.v.Both = append(c.v.Both, r.ID)
		}
	}
}

// passedOpenDeadLetters finds what has arrived, with on_dead_letter: block, though an earlier event
// of its ordering group is an open dead letter.
func (c *checking) passedOpenDeadLetters() {
	if !c.h.Block {
		return
	}
	first := map[groupIn]int64{} // number of the first open dead letter of an ordering group
	group := func(r *row) groupIn {
		return groupIn{aggregate: r.Aggregate, key: r.Key, exchangeOrTopic: r.ExchangeOrTopic}
	}
	for _, r := range c.rows {
		if r.retryRow != nil && r.retryRow.State == Open {
			if n := first[group(r)]; n == 0 || r.Seq < n {
				first[group(r)] = r.Seq
			}
		}
	}
	for _, committed := range c.h.Committed {
		r := c.rows[committed.ID]
		if n := first[group(r)]; n != 0 && r.Seq > n && r.first >= 0 {
			c.v.OutOfOrder = append(c.v.OutOfOrder, r.ID)
		}
	}
}
