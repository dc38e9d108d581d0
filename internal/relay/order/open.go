// What a lane has offered to the sink, and the next call to it.

package order

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// open holds the events that a lane offers to the sink and that have no outcome yet, in the order
// of the lane. It never holds more than one full call. Events in doubt are offered again before any
// new one. After an error they are offered one by one until one is confirmed. So within an ordering
// group no event is offered before an earlier one that was offered, unless both are in the same
// call: there the sink keeps the order. (With OneByOne no two events of an ordering group are in
// open at once.)
type open struct {
	items   []*inflight.Event
	bytes   int
	unknown int // events in state Unknown
}

// room reports whether the event may be added to the call. An event that is larger than a call is
// sent alone.
func (o *open) room(e *inflight.Event) bool {
	return len(o.items) == 0 || len(o.items) < sink.MaxCallEvents && o.bytes+e.Size <= sink.MaxCallBytes
}

func (o *open) add(e *inflight.Event) {
	e.State = sink.Unsent
	o.items = append(o.items, e)
	o.bytes += e.Size
}

// has reports whether a new event of the event's ordering group is in open.
func (o *open) has(e *inflight.Event) bool {
	return e.Group != 0 && slices.ContainsFunc(o.items, func(other *inflight.Event) bool { return other.Group == e.Group && !other.IsRow() })
}

// onlyRows reports whether no new event is in open.
func (o *open) onlyRows() bool {
	return !slices.ContainsFunc(o.items, func(e *inflight.Event) bool { return !e.IsRow() })
}

// reset empties open, so that the events can be added again.
func (o *open) reset() { o.items, o.bytes, o.unknown = o.items[:0], 0, 0 }

// undecided reports whether an earlier event of the same ordering group has no outcome. The search
// is quadratic. It is done only for rejected events.
func (o *open) undecided(e *inflight.Event) bool {
	for _, earlier := range o.items {
		switch {
		case earlier == e:
			return false
		case earlier.Group == e.Group && e.Group != 0 && (earlier.State == sink.Unsent || earlier.State == sink.Unknown):
			return true
		}
	}
	return false
}

// markUnsentBehind marks as unsent the events in doubt behind a rejected one of the same ordering
// group. Such an event may have reached the broker and overtaken the rejected one, as any event in
// flight may. If it has not, it is not sent again before the rejected one.
func (o *open) markUnsentBehind(rejected *inflight.Event) {
	behind := false
	for _, e := range o.items {
		if behind = behind || e == rejected; behind && e.Group == rejected.Group && e.Group != 0 && e.State == sink.Unknown {
			e.State = sink.Unsent
		}
	}
}

// compact removes the events that have an outcome, and counts the others.
func (o *open) compact() {
	rest := o.items[:0]
	o.bytes, o.unknown = 0, 0
	for _, e := range o.items {
		switch e.State {
		case sink.Confirmed, sink.Rejected:
			continue
		case sink.Unknown:
			o.unknown++
		case sink.Unsent:
		}
		o.bytes += e.Size
		rest = append(rest, e)
	}
	clear(o.items[len(rest):])
	o.items = rest
}

// choose puts the events that are offered now into c, in order, limit events at most. When an event
// is left out, the later ones of its ordering group are left out too.
func (o *open) choose(c *call, limit int, may func(*inflight.Event) bool) {
	c.items, c.events, c.left = c.items[:0], c.events[:0], c.left[:0]
	for _, e := range o.items {
		switch {
		case len(c.items) == limit:
		case o.unknown == 0 || !c.leftOut(e) && may(e):
			c.items = append(c.items, e)
			c.events = append(c.events, &e.Event)
		default:
			c.left = append(c.left, e)
		}
	}
}

// call is one call of Publish.
type call struct {
	items    []*inflight.Event
	events   []*event.Event
	rejected []*inflight.Event // of the last call
	left     []*inflight.Event // events of open that may not go now
}

func (c *call) leftOut(e *inflight.Event) bool {
	return e.Group != 0 && slices.ContainsFunc(c.left, func(other *inflight.Event) bool { return other.Group == e.Group })
}
