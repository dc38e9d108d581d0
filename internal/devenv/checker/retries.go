package checker

import (
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// This file applies the rules of the siding: each committed event is at the broker or in exactly one of the two tables. In
// both places is only what was sent again after a crash or a takeover; it counts as a duplicate, which it becomes.

// siding takes what the tables hold and held to their rows.
func (c *checking) siding() {
	ids := map[outbox.Position]string{} // of letters that were purged
	for i := range c.h.Stays {
		stay := &c.h.Stays[i]
		ids[stay.Position] = stay.ID
		if r := c.rows[stay.ID]; r != nil {
			r.stays = append(r.stays, stay)
			r.at(stay.Position, c)
		}
	}
	for i := range c.h.Siding {
		s := &c.h.Siding[i]
		id := s.ID
		if id == "" {
			id = ids[s.Position]
		}
		r := c.rows[id]
		switch {
		case r == nil && s.State == Purged:
		case r == nil:
			c.phantom(id)
		case r.sided != nil:
			c.v.InTwo = append(c.v.InTwo, id)
		default:
			r.sided = s
			r.at(s.Position, c)
		}
	}
}

// wasLetter reports whether a replay of the row is not one out of nothing.
func (r *row) wasLetter() bool {
	return r.sided != nil && (r.sided.State == Replayed || r.sided.State == Open || r.sided.State == Purged)
}

// settled says of each row where it is.
func (c *checking) settled() {
	for _, committed := range c.h.Committed {
		r := c.rows[committed.ID]
		arrived := r.first >= 0
		if r.sided == nil {
			if !arrived {
				c.v.Lost = append(c.v.Lost, r.ID)
			}
			continue
		}
		both := arrived
		switch r.sided.State {
		case Parked:
			c.v.Parked = append(c.v.Parked, r.ID)
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
			both = false // a letter that was replayed, perhaps
		}
		if both {
			c.v.Both = append(c.v.Both, r.ID)
		}
	}
}

// passedOpenLetters finds what has arrived, with on_dead_letter: block, though an earlier event of its chain is an open letter.
func (c *checking) passedOpenLetters() {
	if !c.h.Hold {
		return
	}
	first := map[chainIn]int64{} // number of the first open letter of a chain
	chain := func(r *row) chainIn { return chainIn{aggregate: r.Aggregate, key: r.Key, unit: r.Unit} }
	for _, r := range c.rows {
		if r.sided != nil && r.sided.State == Open {
			if n := first[chain(r)]; n == 0 || r.Seq < n {
				first[chain(r)] = r.Seq
			}
		}
	}
	for _, committed := range c.h.Committed {
		r := c.rows[committed.ID]
		if n := first[chain(r)]; n != 0 && r.Seq > n && r.first >= 0 {
			c.v.OutOfOrder = append(c.v.OutOfOrder, r.ID)
		}
	}
}
