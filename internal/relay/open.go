package relay

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// open is what a lane has offered to the sink, or is about to, and what is not confirmed: in the order of the lane, and never
// more than one full call. What may be offered next depends on what earlier calls left behind:
//
//   - Nothing was rejected: the events of earlier calls, in order, and behind them new ones; but no new ones while any is
//     unknown, so that what is in doubt, and may arrive twice, does not grow while calls fail. After an error they are
//     offered one by one until one is confirmed.
//   - Some were rejected, so the lane is held: first the others alone, unknown ones (which may be at the broker already)
//     and unsent ones, without those behind a rejected one of their key. Then the rejected ones alone, without those
//     behind another one of their key that is not rejected.
//
// So within a key no event is offered before an earlier one that was offered and is not confirmed, unless both are in the
// same call, where the sink sees to it. (With ordering Key no two events of a key are in open at once.)
type open struct {
	items    []*item
	bytes    int
	unknown  int // items in state Unknown
	rejected int // items in state Rejected
	held     int // items that were rejected at least once: the rejected ones, and those whose new attempt is unknown
}

// fill adds new events up to a full call, when new ones may be offered at all. An undecodable event is never sent: it is
// added when it is the first, and what follows stays behind it.
func (o *open) fill(ready *fifo) {
	if o.unknown > 0 || o.rejected > 0 {
		return
	}
	for ready.first != nil && len(o.items) < sink.MaxCallEvents {
		it := ready.first
		if len(o.items) > 0 && (it.ev.Fault != nil || o.items[0].ev.Fault != nil || o.bytes+it.size > sink.MaxCallBytes) {
			return
		}
		ready.pop()
		o.items = append(o.items, it)
		o.bytes += it.size
	}
}

// choose puts into c the events that may be offered now, at most limit of them.
func (o *open) choose(c *call, limit int) {
	c.items, c.events, c.retry = c.items[:0], c.events[:0], false
	if o.rejected == 0 {
		for _, it := range o.items[:min(limit, len(o.items))] {
			c.add(it)
		}
	} else {
		o.pick(c, limit, false)
		if len(c.items) == 0 {
			c.retry = true
			o.pick(c, limit, true)
		}
	}
	c.outcomes = slices.Grow(c.outcomes[:0], len(c.items))[:len(c.items)]
	clear(c.outcomes)
}

// pick adds the events to c that are rejected, or those that are not, without those behind one of the other sort of their
// key.
func (o *open) pick(c *call, limit int, rejected bool) {
	for i, it := range o.items {
		if len(c.items) == limit {
			return
		}
		if (it.state == sink.Rejected) == rejected && !o.behind(i, !rejected) {
			c.add(it)
		}
	}
}

// behind reports whether an event before the i-th has its key and is rejected, or is not. Looking through all of them is
// quadratic in a full call, and done only while a lane is held.
func (o *open) behind(i int, rejected bool) bool {
	it := o.items[i]
	for _, earlier := range o.items[:i] {
		if (earlier.state == sink.Rejected) == rejected && earlier.ev.Hash == it.ev.Hash {
			return true
		}
	}
	return false
}

// compact drops the confirmed ones and counts the rest.
func (o *open) compact() {
	rest := o.items[:0]
	o.bytes, o.unknown, o.rejected, o.held = 0, 0, 0, 0
	for _, it := range o.items {
		switch it.state {
		case sink.Confirmed:
			continue
		case sink.Unknown:
			o.unknown++
		case sink.Rejected:
			o.rejected++
		case sink.Unsent:
		}
		if it.fault != nil {
			o.held++
		}
		o.bytes += it.size
		rest = append(rest, it)
	}
	clear(o.items[len(rest):])
	o.items = rest
}

// call is one Publish: what it carries, what came of it.
type call struct {
	items     []*item
	events    []*outbox.Event
	outcomes  []sink.Outcome
	confirmed []*item
	retry     bool // it carries rejected events
}

func (c *call) add(it *item) {
	c.items = append(c.items, it)
	c.events = append(c.events, &it.ev)
}
