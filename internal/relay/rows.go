// Rows of the retry table on their way through a lane.

package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// Rows of the siding on their way through the lane. While some of a chain are in open none of its
// new events is; with ordering Key it is one.

// takeRow takes in a row that was offered.
func (ln *lane) takeRow(f *Fed) {
	f.Outcome = sink.Outcome{}
	it := &item{ev: f.Event, place: f.Place, chain: f.Chain, fed: f, size: f.Event.Size()}
	if f.Replay {
		ln.replays.push(it)
	} else {
		ln.rows.push(it)
	}
}

// fillRows adds rows to open: replays first, and half a call at the most while new events are
// ready. One that has no room keeps back all behind it: they may be of its chain.
func (ln *lane) fillRows() {
	if ln.replays.first == nil && ln.rows.first == nil {
		return
	}
	limit, room := sink.MaxCallEvents, sink.MaxCallBytes
	if ln.ready.first != nil {
		limit, room = limit/2, room/2
	}
	for _, list := range []*fifo{&ln.replays, &ln.rows} {
		var rest fifo
		for list.first != nil && len(ln.open.items) < limit && (len(ln.open.items) == 0 || ln.open.bytes+list.first.size <= room) {
			if it := list.pop(); ln.admits(it) {
				ln.open.add(it)
			} else {
				rest.push(it)
			}
		}
		rest.join(list)
		*list = rest
	}
}

// admits reports whether a row may go now, and books that it does. A later row of its chain finds
// that: with ordering Key it waits for the outcome, else it goes behind in the same call.
func (ln *lane) admits(it *item) bool {
	if it.chain == 0 {
		return true
	}
	c := ln.chains[it.chain]
	switch {
	case c != nil && (c.front != nil || c.dying):
		if it.fed.Replay {
			ln.setFlag(&c.awaited, true)
		}
		return false
	case c != nil && c.rows > 0 && (ln.oneByOne || c.replay || it.fed.Replay):
		return false
	case it.fed.Replay && !ln.oneByOne && ln.open.has(it):
		return false
	}
	c = ln.chain(it)
	ln.setFlag(&c.awaited, false)
	if c.rows++; c.rows == 1 {
		ln.special++
	}
	c.replay = it.fed.Replay
	return true
}

// rowBack gives a row back to the siding, with what came of it. Its chain has one fewer in open.
func (ln *lane) rowBack(it *item, out sink.Outcome) {
	it.fed.Outcome = out
	ln.returned = append(ln.returned, it.fed)
	if it.chain == 0 {
		return
	}
	c := ln.chains[it.chain]
	if c.rows--; c.rows == 0 {
		ln.special--
		c.replay = false
	}
}

// rowConfirmed counts one row less, and opens the gate that it was perhaps the probe of.
func (ln *lane) rowConfirmed(it *item) {
	ln.line.gates.open(it.place)
	ln.rowBack(it, sink.Outcome{State: sink.Confirmed})
	if it.chain == 0 {
		return
	}
	c := ln.chains[it.chain]
	if !it.fed.Replay {
		it.fed.Left = ln.uncount(it.chain, it.place.Unit)
	}
	if ln.chains[it.chain] == c {
		ln.advance(c)
	}
}

// turnBack sends the rest of a chain back of which a row was refused, and ends its cut-over: behind
// a row that stays nothing may go.
func (ln *lane) turnBack(refused *item) {
	chain, unit := refused.chain, refused.place.Unit
	if chain == 0 {
		return
	}
	if !refused.fed.Replay {
		unsent := sink.Outcome{State: sink.Unsent}
		for _, it := range ln.open.items {
			if it.chain == chain && it.fed != nil && it.state == sink.Unsent {
				it.state = sink.Rejected // it has an outcome: it leaves open
				ln.rowBack(it, unsent)
			}
		}
		var rest fifo
		for ln.rows.first != nil {
			if it := ln.rows.pop(); it.chain == chain {
				it.fed.Outcome = unsent
				ln.returned = append(ln.returned, it.fed)
			} else {
				rest.push(it)
			}
		}
		ln.rows = rest
		if refused.fed.Outcome.Fault.Class != sink.Permanent { // a dead letter leaves its chain at once
			ln.notNow(chain, unit)
		}
	}
	if c := ln.chains[chain]; c != nil {
		ln.advance(c)
	}
}

// note does what a note says.
func (ln *lane) note(n note) {
	switch n.kind {
	case buried:
		if c := ln.chains[n.chain]; c != nil {
			ln.setFlag(&c.dying, false)
			ln.advance(c)
		}
	case uncounted:
		ln.uncount(n.chain, n.unit)
		if c := ln.chains[n.chain]; c != nil {
			ln.advance(c)
		}
	case nothing:
		ln.notNow(n.chain, n.unit)
	case stopping:
		ln.waiting.undoAll()
		for _, c := range ln.chains {
			ln.advance(c)
		}
	}
}

// uncount counts one row less of a chain. When its unit was counted as a whole and is released by
// that, all its chains go on; its own does where this was called.
func (ln *lane) uncount(chain, unit uint64) (left int) {
	left, whole := ln.waiting.sub(chain, unit, !ln.line.stopping.Load())
	if whole && left == 0 {
		ln.advanceUnit(unit)
	}
	return left
}

// notNow ends a cut-over: what was kept in memory goes to the writer, in order.
func (ln *lane) notNow(chain, unit uint64) {
	if ln.waiting.undo(chain, unit) {
		ln.advanceUnit(unit)
	} else if c := ln.chains[chain]; c != nil {
		ln.advance(c)
	}
}
