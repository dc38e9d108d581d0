// Rows of the retry table on their way through a lane. While rows of an ordering group are in
// `open`, none of its new events is; with ordering Key it is one row at a time.

package relay

import "github.com/cdc-relay/cdc-relay/internal/sink"

// takeRow queues a row that was offered.
func (ln *lane) takeRow(f *Fed) {
	f.Outcome = sink.Outcome{}
	it := &item{ev: f.Event, place: f.Place, group: f.Group, fed: f, size: f.Event.Size()}
	if f.Replay {
		ln.replays.push(it)
	} else {
		ln.rows.push(it)
	}
}

// fillRows adds rows to open: replays first, and half a call at most while new events are ready.
// All wait behind a row that has no room: they may be of its ordering group.
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

// admits reports whether a row may go now, and if so notes it. A later row of its ordering group
// then waits for the outcome (ordering Key), or goes behind it in the same call.
func (ln *lane) admits(it *item) bool {
	if it.group == 0 {
		return true
	}
	c := ln.groups[it.group]
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
	c = ln.group(it)
	ln.setFlag(&c.awaited, false)
	if c.rows++; c.rows == 1 {
		ln.special++
	}
	c.replay = it.fed.Replay
	return true
}

// rowBack gives a row back to the retry table, with its outcome. Its ordering group has one fewer
// in open.
func (ln *lane) rowBack(it *item, out sink.Outcome) {
	it.fed.Outcome = out
	ln.returned = append(ln.returned, it.fed)
	if it.group == 0 {
		return
	}
	c := ln.groups[it.group]
	if c.rows--; c.rows == 0 {
		ln.special--
		c.replay = false
	}
}

// rowConfirmed counts one row less, and ends the pause of its place: it may have been the probe.
func (ln *lane) rowConfirmed(it *item) {
	ln.line.pauses.resume(it.place)
	ln.rowBack(it, sink.Outcome{State: sink.Confirmed})
	if it.group == 0 {
		return
	}
	c := ln.groups[it.group]
	if !it.fed.Replay {
		it.fed.Left = ln.uncount(it.group, it.place.ExchangeOrTopic)
	}
	if ln.groups[it.group] == c {
		ln.advance(c)
	}
}

// turnBack sends back the rest of an ordering group of which a row was rejected, and ends its
// cut-over: nothing may go behind a row that stays.
func (ln *lane) turnBack(refused *item) {
	group, exchangeOrTopic := refused.group, refused.place.ExchangeOrTopic
	if group == 0 {
		return
	}
	if !refused.fed.Replay {
		unsent := sink.Outcome{State: sink.Unsent}
		for _, it := range ln.open.items {
			if it.group == group && it.fed != nil && it.state == sink.Unsent {
				it.state = sink.Rejected // so that it leaves open
				ln.rowBack(it, unsent)
			}
		}
		var rest fifo
		for ln.rows.first != nil {
			if it := ln.rows.pop(); it.group == group {
				it.fed.Outcome = unsent
				ln.returned = append(ln.returned, it.fed)
			} else {
				rest.push(it)
			}
		}
		ln.rows = rest
		// a dead letter leaves its ordering group at once
		if refused.fed.Outcome.Fault.Class != sink.Permanent {
			ln.notNow(group, exchangeOrTopic)
		}
	}
	if c := ln.groups[group]; c != nil {
		ln.advance(c)
	}
}

// note handles a note.
func (ln *lane) note(n note) {
	switch n.kind {
	case deadLettered:
		if c := ln.groups[n.group]; c != nil {
			ln.setFlag(&c.dying, false)
			ln.advance(c)
		}
	case uncounted:
		ln.uncount(n.group, n.exchangeOrTopic)
		if c := ln.groups[n.group]; c != nil {
			ln.advance(c)
		}
	case nothing:
		ln.notNow(n.group, n.exchangeOrTopic)
	case stopping:
		ln.waiting.undoAll()
		for _, c := range ln.groups {
			ln.advance(c)
		}
	}
}

// uncount counts one row less of an ordering group. When its exchange or topic was counted as a
// whole and is released by that, all its ordering groups go on; its own does where this was called.
func (ln *lane) uncount(group, exchangeOrTopic uint64) (left int) {
	left, whole := ln.waiting.sub(group, exchangeOrTopic, !ln.line.stopping.Load())
	if whole && left == 0 {
		ln.advanceWhole(exchangeOrTopic)
	}
	return left
}

// notNow ends a cut-over: what is kept in memory goes to the writer, in order.
func (ln *lane) notNow(group, exchangeOrTopic uint64) {
	if ln.waiting.undo(group, exchangeOrTopic) {
		ln.advanceWhole(exchangeOrTopic)
	} else if c := ln.groups[group]; c != nil {
		ln.advance(c)
	}
}
