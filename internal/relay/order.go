// The decision about the next event of an ordering group: it is sent, waits, or is deferred.

package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// decision is what happens to a new event now.
type decision uint8

const (
	goes   decision = iota // it may be sent
	waits                  // it waits in memory behind an event whose outcome is pending
	defers                 // it goes to the retry table, and so does what waits behind it
)

// decideNext decides about the first event of its ordering group that is not on the wire. g may be
// nil. An event goes to the writer only when no earlier event of its ordering group is on the wire,
// waiting or dying. So the rows of an ordering group are written in order.
func (ln *lane) decideNext(it *item, g *group) decision {
	if it.group == 0 {
		if ln.line.pauses.paused(it.place) {
			return defers
		}
		return goes
	}
	if g != nil && (g.dying || g.late || g.awaited) {
		return waits
	}
	if is, keep := ln.waiting.lookup(it.group, it.place.ExchangeOrTopic); is {
		if keep {
			return waits
		}
		return defers
	}
	rows := g != nil && g.rows > 0
	switch {
	case rows:
		return waits
	case ln.line.pauses.paused(it.place):
		return defers
	}
	return goes
}

// arrive queues a new event in ready, or behind an earlier event of its ordering group if one is in
// the lane.
func (ln *lane) arrive(it *item) {
	if !ln.oneByOne || it.group == 0 {
		ln.ready.push(it)
		return
	}
	if g := ln.groups[it.group]; g != nil {
		g.waiting.push(it)
		ln.advance(g)
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
	g := ln.groups[it.group] // ordering group 0 has no state
	if g != nil && g.front != it && g.waiting.first != nil {
		return waits
	}
	return ln.decideNext(it, g)
}

// putAside carries out the decision about an event that may not go: it defers, dead-letters or
// keeps the event.
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
		if g := ln.groups[it.group]; g != nil {
			g.release(it)
			ln.advance(g)
		}
	default:
		g := ln.group(it)
		if g.front == it {
			g.front = nil
			g.waiting.pushFront(it)
		} else {
			g.waiting.push(it)
		}
		ln.advance(g)
	}
}

// nothingWaits reports whether no ordering group waits, nothing is paused and no ordering group has
// a state that decide has to check.
func (ln *lane) nothingWaits() bool {
	return ln.waiting.none() && ln.line.pauses.count.Load() == 0 && ln.special == 0 && (ln.oneByOne || len(ln.groups) == 0)
}

// advance moves the waiting events of an ordering group on, as far as possible now: to ready, or to
// the retry table.
func (ln *lane) advance(g *group) {
	for g.front == nil && g.waiting.first != nil {
		it := g.waiting.first
		switch ln.decideNext(it, g) {
		case waits:
			return
		case defers:
			ln.deferRow(g.waiting.pop())
		case goes:
			if !ln.oneByOne { // all of them go, before those in ready, which came later
				ln.ready.pushAllFront(&g.waiting)
				break
			}
			g.front = g.waiting.pop()
			ln.ready.push(g.front)
		}
	}
	ln.forget(g)
}

// advanceWhole calls advance for all ordering groups of an exchange or topic.
func (ln *lane) advanceWhole(exchangeOrTopic uint64) {
	for _, g := range ln.groups {
		if g.exchangeOrTopic == exchangeOrTopic {
			ln.advance(g)
		}
	}
}
