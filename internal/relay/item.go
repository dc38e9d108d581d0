// An event inside the line.

package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// item is an event in the line: a new one from its admission to its settlement, then pooled by the
// budget, or a row of the retry table while it is in a lane.
type item struct {
	ev      event.Event
	columns [][]byte // backing of ev.Columns, kept by the pool
	commit  *commit  // nil: a row
	chunk   *chunk   // where the event's bytes are; nil when it has none
	size    int
	place   sink.Place
	group   uint64 // 0: the event has no order
	fed     *Fed   // nil: a new event

	next *item // in one of the lists of a lane, or the budget's free list

	state    sink.State // the outcome of the last call that sent it; Unsent when none did
	attempts int        // rejections so far that count
	since    time.Time  // of the first
	deferred Deferred   // what is given to the retry table
}

// fill makes the item a copy of ev, with the bytes in buf (len(buf) == ev.Size()). A NULL stays
// nil, and an empty value stays non-nil.
func (it *item) fill(ev *event.Event, buf []byte, c *commit) {
	it.ev = *ev
	it.commit = c
	it.state = sink.Unsent
	for _, f := range [...]*[]byte{
		&it.ev.ID, &it.ev.Aggregate, &it.ev.Key, &it.ev.Type, &it.ev.Payload, &it.ev.Traceparent, &it.ev.Headers, &it.ev.Raw,
	} {
		*f, buf = carve(buf, *f)
	}
	it.ev.Columns = nil
	if len(ev.Columns) > 0 {
		cols := it.columns[:0]
		for _, c := range ev.Columns {
			var col []byte
			col, buf = carve(buf, c)
			cols = append(cols, col)
		}
		it.columns, it.ev.Columns = cols, cols
	}
}

// refusals is the number of rejections of the event that count so far.
func (it *item) refusals() int {
	if it.fed != nil {
		return it.fed.Refusals
	}
	return it.attempts
}

// carve copies b to the front of buf and returns the copy, which cannot grow into its neighbour,
// and the rest of buf.
func carve(buf, b []byte) (copied, rest []byte) {
	if b == nil {
		return nil, buf
	}
	n := copy(buf, b)
	return buf[:n:n], buf[n:]
}

// clear drops every reference, so that a pooled item keeps no chunk alive.
func (it *item) clear() {
	clear(it.columns)
	*it = item{columns: it.columns[:0]}
}

// fifo is a list of items linked by next.
type fifo struct{ first, last *item }

func (f *fifo) push(it *item) {
	it.next = nil
	if f.first == nil {
		f.first = it
	} else {
		f.last.next = it
	}
	f.last = it
}

func (f *fifo) pop() *item {
	it := f.first
	f.first = it.next
	it.next = nil
	return it
}

func (f *fifo) pushFront(it *item) {
	it.next = f.first
	if f.first == nil {
		f.last = it
	}
	f.first = it
}

// pushAllFront moves all of g before the first of f.
func (f *fifo) pushAllFront(g *fifo) {
	g.join(f)
	*f, *g = *g, fifo{}
}

// join moves all of g to the end of f.
func (f *fifo) join(g *fifo) {
	if g.first == nil {
		return
	}
	if f.first == nil {
		f.first = g.first
	} else {
		f.last.next = g.first
	}
	f.last = g.last
	*g = fifo{}
}
