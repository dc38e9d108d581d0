package relay

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// open is what a lane has offered to the sink, or is about to, and what is not confirmed: in the order of the lane, and never
// more than one full call. What may be offered next depends on what earlier calls left behind:
//
//   - Unknown events first, and they alone. They may be at the broker already, and later ones must not pass them.
//   - Else rejected ones, and they alone: they hold the lane.
//   - Else the unsent ones of earlier calls, and behind them new ones.
//
// So an event that was rejected is passed only by those that were sent with it, before the answer was known; what the
// sink spared for its sake, and all that came later, goes when it is confirmed.
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
	want := sink.Unsent
	switch {
	case o.unknown > 0:
		want = sink.Unknown
	case o.rejected > 0:
		want = sink.Rejected
	}
	c.items, c.events = c.items[:0], c.events[:0]
	for _, it := range o.items {
		if it.state == want && len(c.items) < limit {
			c.items = append(c.items, it)
			c.events = append(c.events, &it.ev)
		}
	}
	c.outcomes = slices.Grow(c.outcomes[:0], len(c.items))[:len(c.items)]
	clear(c.outcomes)
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
}
