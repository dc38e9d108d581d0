// Rows of the retry table on their way through a lane. While rows of an ordering group are in
// `open`, none of its new events is; with ordering Key it is one row at a time.

package relay

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// takeRow queues a row that was offered.
func (ln *lane) takeRow(f *Fed) {
	f.Outcome = sink.Outcome{}
	f.Alone = f.Alone && ln.line.prober != nil
	it := &item{ev: f.Event, place: f.Place, group: f.Group, fed: f, size: f.Event.Size()}
	if f.Replay {
		ln.replays.push(it)
	} else {
		ln.rows.push(it)
	}
}

// fillRows adds rows to open: replays first, and half a call at most while new events are ready.
// When a row has no room, the later ones of its list wait, because they may be of its ordering
// group.
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
			switch it := list.pop(); {
			case !ln.admits(it):
				rest.push(it)
			case it.fed.Alone:
				ln.probing = append(ln.probing, it)
			default:
				ln.open.add(it)
			}
		}
		rest.join(list)
		*list = rest
	}
}

// admits reports whether a row may go now, and if so counts it. With ordering Key a later row of
// the ordering group waits for its outcome; otherwise the later row goes behind it. A dead letter
// that is replayed, or a row that is sent apart, always goes alone in its ordering group.
func (ln *lane) admits(it *item) bool {
	if it.group == 0 {
		return true
	}
	g, alone := ln.groups[it.group], it.fed.Replay || it.fed.Alone
	switch {
	case g != nil && (g.front != nil || g.dying):
		if it.fed.Replay {
			ln.setFlag(&g.awaited, true)
		}
		return false
	case g != nil && g.rows > 0 && (ln.oneByOne || g.alone || alone):
		return false
	case alone && !ln.oneByOne && ln.open.has(it):
		return false
	}
	g = ln.group(it)
	ln.setFlag(&g.awaited, false)
	if g.rows++; g.rows == 1 {
		ln.special++
	}
	g.alone = alone
	return true
}

// probed is a row that was sent apart, and what became of it.
type probed struct {
	item    *item
	outcome sink.Outcome
}

// probe sends the rows that go apart. While one is away, admits lets nothing else of its ordering
// group go: a new event waits because the row is counted, and another row because g.alone is set.
// So nothing overtakes the row, however late its answer is.
func (ln *lane) probe(ctx context.Context) {
	for _, it := range ln.probing {
		ln.probes.Go(func() {
			out, err := ln.line.prober.Probe(ctx, &it.ev, it.refusals() > 0)
			if err != nil && out.State != sink.Confirmed && out.State != sink.Rejected {
				out = sink.Outcome{State: sink.Unknown}
			}
			ln.mu.Lock()
			ln.probed = append(ln.probed, probed{it, out})
			asleep := ln.asleep
			ln.asleep = false
			ln.mu.Unlock()
			if asleep {
				ln.signal()
			}
		})
	}
	clear(ln.probing)
	ln.probing = ln.probing[:0]
}

// returnRow gives a row back to the retry table, with its outcome. Its ordering group then has one
// row fewer in open.
func (ln *lane) returnRow(it *item, out sink.Outcome) {
	it.fed.Outcome = out
	ln.returned = append(ln.returned, it.fed)
	if it.group == 0 {
		return
	}
	g := ln.groups[it.group]
	if g.rows--; g.rows == 0 {
		ln.special--
		g.alone = false
	}
}

// rowConfirmed counts one row less, and ends the pause of the row's place: the row may have been
// the probe.
func (ln *lane) rowConfirmed(it *item) {
	ln.line.pauses.resume(it.place)
	ln.returnRow(it, sink.Outcome{State: sink.Confirmed})
	if it.group == 0 {
		return
	}
	g := ln.groups[it.group]
	if !it.fed.Replay {
		it.fed.Left = ln.uncount(it.group, it.place.ExchangeOrTopic)
	}
	if ln.groups[it.group] == g {
		ln.advance(g)
	}
}

// returnRest returns the other rows of an ordering group after one of its rows was rejected, or was
// sent apart and is in doubt, and ends the cut-over of the ordering group. Nothing may pass a row
// that stays in the table.
func (ln *lane) returnRest(refused *item) {
	group, exchangeOrTopic := refused.group, refused.place.ExchangeOrTopic
	if group == 0 {
		return
	}
	if !refused.fed.Replay {
		unsent := sink.Outcome{State: sink.Unsent}
		for _, it := range ln.open.items {
			if it.group == group && it.fed != nil && it.state == sink.Unsent {
				it.state = sink.Rejected // so that compact removes it from open
				ln.returnRow(it, unsent)
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
		if fault := refused.fed.Outcome.Fault; fault == nil || fault.Class != sink.Permanent {
			ln.notNow(group, exchangeOrTopic)
		}
	}
	if g := ln.groups[group]; g != nil {
		ln.advance(g)
	}
}

// note handles a note.
func (ln *lane) note(n note) {
	switch n.kind {
	case deadLettered:
		if g := ln.groups[n.group]; g != nil {
			ln.setFlag(&g.dying, false)
			ln.advance(g)
		}
	case uncounted:
		ln.uncount(n.group, n.exchangeOrTopic)
		if g := ln.groups[n.group]; g != nil {
			ln.advance(g)
		}
	case nothing:
		ln.notNow(n.group, n.exchangeOrTopic)
	case stopping:
		ln.waiting.undoAll()
		for _, g := range ln.groups {
			ln.advance(g)
		}
	}
}

// uncount counts one row less of an ordering group. If its exchange or topic was counted as a whole
// and is now released, all ordering groups of the exchange or topic go on. The caller advances the
// row's own ordering group.
func (ln *lane) uncount(group, exchangeOrTopic uint64) (left int) {
	left, whole := ln.waiting.sub(group, exchangeOrTopic, !ln.line.stopping.Load())
	if whole && left == 0 {
		ln.advanceWhole(exchangeOrTopic)
	}
	return left
}

// notNow ends a cut-over: the events that are kept in memory go to the writer, in order.
func (ln *lane) notNow(group, exchangeOrTopic uint64) {
	if ln.waiting.undo(group, exchangeOrTopic) {
		ln.advanceWhole(exchangeOrTopic)
	} else if g := ln.groups[group]; g != nil {
		ln.advance(g)
	}
}
