// What a lane has offered to the sink, and the next call to it.

package relay

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// open holds the items that a lane offers to the sink and that have no outcome yet, in the order of
// the lane. It never holds more than one full call. Items in doubt are offered again before any new
// item. After an error they are offered one by one until one is confirmed. So within an ordering
// group no event is offered before an earlier one that was offered, unless both are in the same
// call: there the sink keeps the order. (With ordering Key no two events of an ordering group are
// in open at once.)
type open struct {
	items   []*item
	bytes   int
	unknown int // items in state Unknown
}

// room reports whether the item may be added to the call. An item that is larger than a call is
// sent alone.
func (o *open) room(it *item) bool {
	return len(o.items) == 0 || len(o.items) < sink.MaxCallEvents && o.bytes+it.size <= sink.MaxCallBytes
}

func (o *open) add(it *item) {
	it.state = sink.Unsent
	o.items = append(o.items, it)
	o.bytes += it.size
}

// has reports whether a new event of the item's ordering group is in open.
func (o *open) has(it *item) bool {
	return it.group != 0 && slices.ContainsFunc(o.items, func(other *item) bool { return other.group == it.group && other.fed == nil })
}

// onlyRows reports whether no new event is in open.
func (o *open) onlyRows() bool {
	return !slices.ContainsFunc(o.items, func(it *item) bool { return it.fed == nil })
}

// reset empties open, so that the items can be added again.
func (o *open) reset() { o.items, o.bytes, o.unknown = o.items[:0], 0, 0 }

// undecided reports whether an earlier item of the same ordering group has no outcome. The search
// is quadratic. It is done only for rejected items.
func (o *open) undecided(it *item) bool {
	for _, earlier := range o.items {
		switch {
		case earlier == it:
			return false
		case earlier.group == it.group && it.group != 0 && (earlier.state == sink.Unsent || earlier.state == sink.Unknown):
			return true
		}
	}
	return false
}

// markUnsentBehind marks as unsent the items in doubt behind a rejected item of the same ordering
// group. Such an item may have reached the broker and overtaken the rejected one, as any item in
// flight may. If it has not, it is not sent again before the rejected one.
func (o *open) markUnsentBehind(rejected *item) {
	behind := false
	for _, it := range o.items {
		if behind = behind || it == rejected; behind && it.group == rejected.group && it.group != 0 && it.state == sink.Unknown {
			it.state = sink.Unsent
		}
	}
}

// compact removes the items that have an outcome, and counts the others.
func (o *open) compact() {
	rest := o.items[:0]
	o.bytes, o.unknown = 0, 0
	for _, it := range o.items {
		switch it.state {
		case sink.Confirmed, sink.Rejected:
			continue
		case sink.Unknown:
			o.unknown++
		case sink.Unsent:
		}
		o.bytes += it.size
		rest = append(rest, it)
	}
	clear(o.items[len(rest):])
	o.items = rest
}

// choose puts the items that are offered now into c, in order, limit items at most. When an item is
// left out, the later items of its ordering group are left out too.
func (o *open) choose(c *call, limit int, may func(*item) bool) {
	c.items, c.events, c.left = c.items[:0], c.events[:0], c.left[:0]
	for _, it := range o.items {
		switch {
		case len(c.items) == limit:
		case o.unknown == 0 || !c.leftOut(it) && may(it):
			c.items = append(c.items, it)
			c.events = append(c.events, &it.ev)
		default:
			c.left = append(c.left, it)
		}
	}
	c.outcomes = slices.Grow(c.outcomes[:0], len(c.items))[:len(c.items)]
	clear(c.outcomes)
}

// call is one call of Publish: the items that it carries, and their outcomes.
type call struct {
	items     []*item
	events    []*event.Event
	outcomes  []sink.Outcome
	confirmed []*item // new events
	rows      []*item // confirmed rows of the retry table
	rejected  []*item
	left      []*item // items of open that may not go now
}

func (c *call) leftOut(it *item) bool {
	return it.group != 0 && slices.ContainsFunc(c.left, func(other *item) bool { return other.group == it.group })
}
