package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// chain is what a lane has in memory of a chain, beside the events in ready and open. It exists while any of it is set.
type chain struct {
	id, unit uint64

	// front is the one new event of the chain that is in ready or open: ordering Key only. What comes later is waiting.
	front *item
	// dying is a new event on its way to the dead letters (on_dead_letter: continue). It counts as on the wire until its row is
	// committed: else a crash in between would send it again behind its followers, and once more to the dead letters.
	dying bool
	// rows of the chain are in open, or one letter that is replayed. New events wait for their outcomes.
	rows   int
	replay bool
	// late: the first of waiting was refused for a fault of its own while there was no room to hold the chain. It is offered
	// again when the lane says so.
	late bool
	// awaited: a letter is to be replayed, and goes when front is settled. A key that never rests would never let it.
	awaited bool

	waiting fifo // new events, in order

	next *chain // in the lane's free list
}

// chain finds the state of a chain, or makes it.
func (ln *lane) chain(it *item) *chain {
	c := ln.chains[it.chain]
	if c == nil {
		if c = ln.spare; c == nil {
			c = new(chain)
		} else {
			ln.spare = c.next
		}
		*c = chain{id: it.chain, unit: it.place.Unit}
		ln.chains[it.chain] = c
	}
	return c
}

// leave forgets a chain that nothing is to be known of any more.
func (ln *lane) leave(c *chain) {
	if c.front == nil && !c.dying && c.rows == 0 && !c.awaited && c.waiting.first == nil {
		delete(ln.chains, c.id)
		c.next, ln.spare = ln.spare, c
	}
}

// stance is what may become of a new event now.
type stance uint8

const (
	goes  stance = iota // it may be sent
	waits               // behind one whose outcome is due, in memory
	parks               // to the retry table, with what waits behind it
)

// stance decides about the first event of its chain that is not on the wire; c may be nil. An event goes to the writer only
// when no earlier one of its chain is on the wire, waiting or dying, so the rows of a chain are written in its order.
func (ln *lane) stance(it *item, c *chain) stance {
	if it.chain == 0 {
		if ln.line.gates.paused(it.place) {
			return parks
		}
		return goes
	}
	if c != nil && (c.dying || c.late || c.awaited) {
		return waits
	}
	if is, keep := ln.holds.of(it.chain, it.place.Unit); is {
		if keep {
			return waits
		}
		return parks
	}
	rows := c != nil && c.rows > 0
	switch {
	case rows:
		return waits
	case ln.line.gates.paused(it.place):
		return parks
	}
	return goes
}

// arrive takes a new event in: to ready or, when an earlier one of its chain is in the lane, behind that.
func (ln *lane) arrive(it *item) {
	if !ln.oneByOne || it.chain == 0 {
		ln.ready.push(it)
		return
	}
	if c := ln.chains[it.chain]; c != nil {
		c.waiting.push(it)
		ln.advance(c)
		return
	}
	ln.chain(it).front = it
	ln.ready.push(it)
}

// decide says what may become of an event of ready, or one in open that was not sent.
func (ln *lane) decide(it *item) stance {
	if it.ev.Fault != nil {
		return parks
	}
	if ln.calm() {
		return goes
	}
	c := ln.chains[it.chain] // chain 0 has none
	if c != nil && c.front != it && c.waiting.first != nil {
		return waits
	}
	return ln.stance(it, c)
}

// putAside does with an event that may not go what was decided about it.
func (ln *lane) putAside(it *item, what stance) {
	switch {
	case it.ev.Fault != nil:
		f := &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Words: it.ev.Fault.Error()}
		if hook := ln.line.cfg.Hooks.Rejected; hook != nil {
			hook(&it.ev, f, 1)
		}
		ln.bury(it, f)
	case what == parks:
		ln.park(it)
		if c := ln.chains[it.chain]; c != nil {
			c.release(it)
			ln.advance(c)
		}
	default:
		c := ln.chain(it)
		if c.front == it {
			c.front = nil
			c.waiting.pushFront(it)
		} else {
			c.waiting.push(it)
		}
		ln.advance(c)
	}
}

// calm reports whether no chain is held, nothing is paused and no chain has a state that pick has to look at.
func (ln *lane) calm() bool {
	return ln.holds.none() && ln.line.gates.count.Load() == 0 && ln.special == 0 && (ln.oneByOne || len(ln.chains) == 0)
}

// release takes the event from the front.
func (c *chain) release(it *item) {
	if c.front == it {
		c.front = nil
	}
}

// advance does with the waiting events of a chain what may be done now.
func (ln *lane) advance(c *chain) {
	for c.front == nil && c.waiting.first != nil {
		it := c.waiting.first
		switch ln.stance(it, c) {
		case waits:
			return
		case parks:
			ln.park(c.waiting.pop())
		case goes:
			if !ln.oneByOne { // all of them go, before those in ready, which came later
				ln.ready.pushAllFront(&c.waiting)
				break
			}
			c.front = c.waiting.pop()
			ln.ready.push(c.front)
		}
	}
	ln.leave(c)
}

// advanceUnit does so for all chains of a unit.
func (ln *lane) advanceUnit(unit uint64) {
	for _, c := range ln.chains {
		if c.unit == unit {
			ln.advance(c)
		}
	}
}
