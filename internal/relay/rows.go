package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// Rows of the siding on their way through the lane. At most one of a chain is in open, and none of its new events with it.

// take is given rows by whoever offers them.
func (ln *lane) take(rows []*Fed) {
	ln.mu.Lock()
	ln.offered = append(ln.offered, rows...)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.signal()
	}
}

// takeRow takes in a row that was offered.
func (ln *lane) takeRow(f *Fed) {
	it := &item{ev: f.Event, place: f.Place, chain: f.Chain, fed: f, size: f.Event.Size()}
	if f.Replay {
		ln.replays.push(it)
	} else {
		ln.rows.push(it)
	}
}

// fillRows adds rows to open: replays first, and half a call at the most while new events are ready.
func (ln *lane) fillRows() {
	if ln.replays.first == nil && ln.rows.first == nil {
		return
	}
	limit := sink.MaxCallEvents
	if ln.ready.first != nil {
		limit /= 2
	}
	for _, list := range []*fifo{&ln.replays, &ln.rows} {
		var rest fifo
		for list.first != nil {
			it := list.pop()
			if len(ln.open.items) >= limit || !ln.open.room(it) || !ln.admits(it) {
				rest.push(it)
				continue
			}
			ln.open.add(it)
		}
		*list = rest
	}
}

// admits reports whether a row may go now, and books that it does. A later row of its chain finds that, so they go in order.
func (ln *lane) admits(it *item) bool {
	if it.chain == 0 {
		return true
	}
	c := ln.chains[it.chain]
	if c != nil && (c.row || c.front != nil || c.dying) {
		return false
	}
	if it.fed.Replay && !ln.oneByOne && ln.open.has(it) {
		return false
	}
	ln.mark(&ln.chain(it).row, true)
	return true
}

// rowConfirmed counts one row less, and opens the gate that it was perhaps the probe of.
func (ln *lane) rowConfirmed(it *item) {
	ln.line.gates.open(it.place)
	it.fed.Outcome = sink.Outcome{State: sink.Confirmed}
	ln.returned = append(ln.returned, it.fed)
	if it.chain == 0 {
		return
	}
	c := ln.chains[it.chain]
	ln.mark(&c.row, false)
	if !it.fed.Replay {
		it.fed.Left = ln.uncount(it.chain, it.place.Unit)
	}
	if ln.chains[c.id] == c {
		ln.advance(c)
	}
}

// rowRefused ends the cut-over of its chain and sends the rest of the chain back: behind a row that stays nothing may go.
func (ln *lane) rowRefused(it *item, f *sink.Fault) {
	it.fed.Outcome = sink.Outcome{State: sink.Rejected, Fault: f}
	ln.returned = append(ln.returned, it.fed)
	if it.chain == 0 {
		return
	}
	c := ln.chains[it.chain]
	ln.mark(&c.row, false)
	if !it.fed.Replay {
		var rest fifo
		for ln.rows.first != nil {
			if other := ln.rows.pop(); other.chain == it.chain {
				other.fed.Outcome = sink.Outcome{State: sink.Unsent}
				ln.returned = append(ln.returned, other.fed)
			} else {
				rest.push(other)
			}
		}
		ln.rows = rest
		if f.Class != sink.Permanent { // a dead letter leaves its chain at once
			ln.notNow(it.chain, it.place.Unit)
		}
	}
	if ln.chains[c.id] == c {
		ln.advance(c)
	}
}

// note is what the siding tells a lane about a chain.
type note struct {
	kind        noteKind
	chain, unit uint64
}

type noteKind uint8

const (
	buried    noteKind = iota // the row of its dying event is committed
	uncounted                 // a row that is counted has left the tables otherwise than through the lane
	nothing                   // nothing of it may be fed now
	stopping                  // every chain: what is kept in memory is to be parked
)

// tell leaves a note for the lane.
func (ln *lane) tell(n note) {
	ln.mu.Lock()
	ln.notes = append(ln.notes, n)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.signal()
	}
}

// note does what a note says.
func (ln *lane) note(n note) {
	switch n.kind {
	case buried:
		if c := ln.chains[n.chain]; c != nil {
			ln.mark(&c.dying, false)
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
		ln.holds.undoAll()
		for _, c := range ln.chains {
			ln.advance(c)
		}
	}
}

// uncount counts one row less of a chain. When its unit was counted as a whole and is released by that, all its chains go on;
// its own does where this was called.
func (ln *lane) uncount(chain, unit uint64) (left int) {
	left, whole := ln.holds.sub(chain, unit, !ln.line.stopping.Load())
	if whole && left == 0 {
		ln.advanceUnit(unit)
	}
	return left
}

// notNow ends a cut-over: what was kept in memory goes to the writer, in order.
func (ln *lane) notNow(chain, unit uint64) {
	if ln.holds.undo(chain, unit) {
		ln.advanceUnit(unit)
	} else if c := ln.chains[chain]; c != nil {
		ln.advance(c)
	}
}
