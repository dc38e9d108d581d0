// The decision about the next event of an ordering group: it is sent, waits, or is deferred.

package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// decision is what happens to a new event now.
type decision uint8

const (
	goes   decision = iota // it may be sent
	waits                  // in memory, behind one whose outcome is pending
	defers                 // to the retry table, with what waits behind it
)

// decideNext decides about the first event of its ordering group that is not on the wire; c may be
// nil. An event goes to the writer only when no earlier one of its ordering group is on the wire,
// waiting or dying, so the rows of an ordering group are written in order.
func (ln *lane) decideNext(it *item, c *group) decision {
	if it.group == 0 {
		if ln.line.pauses.paused(it.place) {
			return defers
		}
		return goes
	}
	if c != nil && (c.dying || c.late || c.awaited) {
		return waits
	}
	if is, keep := ln.waiting.of(it.group, it.place.ExchangeOrTopic); is {
		if keep {
			return waits
		}
		return defers
	}
	rows := c != nil && c.rows > 0
	switch {
	case rows:
		return waits
	case ln.line.pauses.paused(it.place):
		return defers
	}
	return goes
}

// arrive queues a new event: in ready or, when an earlier one of its ordering group is in the lane,
// behind that.
func (ln *lane) arrive(it *item) {
	if !ln.oneByOne || it.group == 0 {
		ln.ready.push(it)
		return
	}
	if c := ln.groups[it.group]; c != nil {
		c.waiting.push(it)
		ln.advance(c)
		return
	}
	ln.group(it).front = it
	ln.ready.push(it)
}

// decide decides about an event of ready, or one in open that was not sent.
func (ln *lane) decide(it *item) decision {
	if it.ev.Fault != nil {
		return defers
	}
	if ln.nothingWaits() {
		return goes
	}
	c := ln.groups[it.group] // ordering group 0 has no state
	if c != nil && c.front != it && c.waiting.first != nil {
		return waits
	}
	return ln.decideNext(it, c)
}

// putAside defers, dead-letters or keeps an event that may not go, as was decided.
func (ln *lane) putAside(it *item, what decision) {
	switch {
	case it.ev.Fault != nil:
		f := &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: it.ev.Fault.Error()}
		if hook := ln.line.cfg.Hooks.Rejected; hook != nil {
			hook(&it.ev, f, 1)
		}
		ln.toDeadLetter(it, f)
	case what == defers:
		ln.deferRow(it)
		if c := ln.groups[it.group]; c != nil {
			c.release(it)
			ln.advance(c)
		}
	default:
		c := ln.group(it)
		if c.front == it {
			c.front = nil
			c.waiting.pushFront(it)
		} else {
			c.waiting.push(it)
		}
		ln.advance(c)
	}
}

// nothingWaits reports whether no ordering group waits, nothing is paused and no ordering group has
// a state that decide has to check.
func (ln *lane) nothingWaits() bool {
	return ln.waiting.none() && ln.line.pauses.count.Load() == 0 && ln.special == 0 && (ln.oneByOne || len(ln.groups) == 0)
}

// advance sends on or defers the waiting events of an ordering group, as far as possible now.
func (ln *lane) advance(c *group) {
	for c.front == nil && c.waiting.first != nil {
		it := c.waiting.first
		switch ln.decideNext(it, c) {
		case waits:
			return
		case defers:
			ln.deferRow(c.waiting.pop())
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

// advanceWhole does so for all ordering groups of an exchange or topic.
func (ln *lane) advanceWhole(exchangeOrTopic uint64) {
	for _, c := range ln.groups {
		if c.exchangeOrTopic == exchangeOrTopic {
			ln.advance(c)
		}
	}
}
