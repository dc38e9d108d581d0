// What may become of the next event of a chain: it is sent, waits, or goes to the retry table.

package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// decision is what may become of a new event now.
type decision uint8

const (
	goes  decision = iota // it may be sent
	waits                 // behind one whose outcome is due, in memory
	parks                 // to the retry table, with what waits behind it
)

// decideNext decides about the first event of its chain that is not on the wire; c may be nil. An
// event goes to the writer only when no earlier one of its chain is on the wire, waiting or dying,
// so the rows of a chain are written in its order.
func (ln *lane) decideNext(it *item, c *chain) decision {
	if it.chain == 0 {
		if ln.line.gates.paused(it.place) {
			return parks
		}
		return goes
	}
	if c != nil && (c.dying || c.late || c.awaited) {
		return waits
	}
	if is, keep := ln.waiting.of(it.chain, it.place.Unit); is {
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

// arrive takes a new event in: to ready or, when an earlier one of its chain is in the lane, behind
// that.
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
func (ln *lane) decide(it *item) decision {
	if it.ev.Fault != nil {
		return parks
	}
	if ln.nothingWaits() {
		return goes
	}
	c := ln.chains[it.chain] // chain 0 has none
	if c != nil && c.front != it && c.waiting.first != nil {
		return waits
	}
	return ln.decideNext(it, c)
}

// putAside does with an event that may not go what was decided about it.
func (ln *lane) putAside(it *item, what decision) {
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

// nothingWaits reports whether no chain waits, nothing is paused and no chain has a state that
// pick has to look at.
func (ln *lane) nothingWaits() bool {
	return ln.waiting.none() && ln.line.gates.count.Load() == 0 && ln.special == 0 && (ln.oneByOne || len(ln.chains) == 0)
}

// advance does with the waiting events of a chain what may be done now.
func (ln *lane) advance(c *chain) {
	for c.front == nil && c.waiting.first != nil {
		it := c.waiting.first
		switch ln.decideNext(it, c) {
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
	ln.forget(c)
}

// advanceUnit does so for all chains of a unit.
func (ln *lane) advanceUnit(unit uint64) {
	for _, c := range ln.chains {
		if c.unit == unit {
			ln.advance(c)
		}
	}
}
