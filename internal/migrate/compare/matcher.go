// The matcher pairs messages of two sides, in whatever order they arrive.

package compare

import (
	"container/list"
	"fmt"
)

// New makes a matcher; report is called with each difference as it is found.
func New(opt Options, report func(Difference)) *Matcher {
	x := &Matcher{opt: opt, report: report, seen: newSeen(opt.Remember), orders: orders{}}
	x.Counts.Differences = map[Kind]int64{}
	for side := range x.waiting {
		x.waiting[side] = map[string]*list.Element{}
	}
	return x
}

// Add takes the next message of a side.
func (x *Matcher) Add(side Side, m Message) {
	id, ok := m.id(x.opt.IDHeader)
	if !ok {
		x.noID(side, &m)
		return
	}
	x.Events[side]++
	x.number[side]++
	if x.waiting[side][id] != nil || x.seen.has(id) {
		x.Duplicates[side]++
		return
	}
	now := &pending{id: id, m: m, number: x.number[side], group: x.group(&m)}
	if e := x.waiting[side.other()][id]; e != nil {
		x.seen.add(id)
		x.pair(side, now, x.take(side.other(), e))
		return
	}
	if x.ends {
		x.AtTheEdge[side]++
		return
	}
	x.waiting[side][id] = x.queue[side].PushBack(now)
	x.bytes[side] += m.size()
	x.orders.wait(now.group)
}

func (x *Matcher) noID(side Side, m *Message) {
	x.NoID[side]++
	if x.opt.Strict {
		d := Difference{Kind: KindNoID, Text: "it cannot be paired"}
		d.Where[side] = m.Where
		x.found(d)
	}
}

// take ends the wait of a message; its place in orders is the caller's.
func (x *Matcher) take(side Side, e *list.Element) *pending {
	h := x.queue[side].Remove(e).(*pending)
	delete(x.waiting[side], h.id)
	x.bytes[side] -= h.m.size()
	return h
}

func (x *Matcher) group(m *Message) group {
	if x.opt.KeyHeader != "" {
		h, _ := m.header(x.opt.KeyHeader)
		return group{exchange: m.ExchangeOrTopic, key: string(h.Value), unordered: h.Value == nil}
	}
	if x.opt.Kafka {
		return group{exchange: m.ExchangeOrTopic, key: string(m.Key), unordered: m.Key == nil}
	}
	return group{exchange: m.ExchangeOrTopic, key: m.RoutingKey}
}

// pair compares a message that has just come with the one of the other side that has waited.
func (x *Matcher) pair(side Side, now, waited *pending) {
	x.Compared++
	pair := [2]*pending{}
	pair[side], pair[side.other()] = now, waited
	differs := x.compare(pair)
	if now.group != waited.group {
		// a difference already, and two numbers that say nothing of each other
		x.orders.gone(waited.group)
	} else if before, first, swapped := x.orders.pair(now.group, now.id, [2]int64{pair[Theirs].number, pair[Ours].number}); swapped && !now.group.unordered {
		x.differ(pair, Difference{Kind: KindOrder, Text: fmt.Sprintf("in %s it comes before %q of the same key, on the other side after it", first, before)})
		differs = true
	}
	if !differs {
		x.Equal++
	}
}

// Waiting is how many messages of a side wait for their counterparts, and about how many bytes they
// take.
func (x *Matcher) Waiting(side Side) (n int, bytes int64) { return x.queue[side].Len(), x.bytes[side] }

// GiveUp takes the oldest message of a side that waits for one without a counterpart.
func (x *Matcher) GiveUp(side Side) {
	e := x.queue[side].Front()
	if e == nil {
		return
	}
	h := x.take(side, e)
	x.orders.gone(h.group)
	if h.m.Early {
		x.AtTheEdge[side]++
		return
	}
	x.GivenUp[side]++
	x.alone(side, h)
}

// End says that no more events are taken in; the counterparts of those that wait still are.
func (x *Matcher) End() { x.ends = true }

// Finish takes what still waits for without a counterpart. Cut short, it says nothing of them: they
// may have been on their way.
func (x *Matcher) Finish(cut bool) {
	for side := range x.queue {
		for e := x.queue[side].Front(); e != nil; e = x.queue[side].Front() {
			h := x.take(Side(side), e)
			x.orders.gone(h.group)
			if cut || h.m.Early {
				x.AtTheEdge[side]++
			} else {
				x.alone(Side(side), h)
			}
		}
	}
}

func (x *Matcher) alone(side Side, h *pending) {
	d := Difference{Kind: KindMissing, ID: h.id, Only: side.String(), Text: "only in " + side.String()}
	d.Where[side] = h.m.Where
	x.found(d)
}
