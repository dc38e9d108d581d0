// Package inflight has what is on its way between the stream and the broker: the events, the memory
// that they may take (Budget), and which of their transactions are settled (Tracker). This file has
// the event: one type from its admission to its settlement, and for a row of the retry table from
// its reading to its result.
package inflight

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Event is an event on its way. A new one belongs to its lane from Budget.Admit until its
// settlement, and to the retry table from Defer until Committed; then it goes back to the pool. A
// row of the retry table, or a dead letter that is replayed, belongs to its lane from Found until
// Finish. A copy for the mirror belongs to its lane from Found until Done is called.
type Event struct {
	event.Event
	Place sink.Place
	Group uint64 // the ordering group; 0: the event has no order
	Size  int    // bytes of the event
	// Digest names a new event's row in the sent set (sent.Digest); 0 for other events, and while
	// no sent set is kept.
	Digest int64
	Next   *Event // the next one in the list that the event is in

	State    sink.State  // the outcome of the last call that sent it; Unsent when none did
	Refusal  *sink.Fault // its last rejection; nil: it was not rejected
	Attempts int         // rejections that count against retry.max_attempts
	Since    time.Time   // of a new event's first rejection; zero without one

	// Dead means that the event's row is, or is to be, a dead letter.
	Dead bool
	// DueIn is how long the event's row waits for the next attempt; 0 means that it does not wait
	// for a time.
	DueIn time.Duration

	Row     *store.Row     // nil: a new event, or the mirror's copy of a dead letter
	Request *store.Request // set if the row is a dead letter that an operator replays
	// Done takes the outcome of the mirror's copy of a dead letter; nil means that the event is no
	// such copy.
	Done func(sink.Outcome)

	columns [][]byte // backing of Columns, kept by the pool
	commit  *Commit  // the transaction of a new event; else nil
	chunk   *chunk   // where the event's bytes are; nil when it has none
}

// IsRow reports whether the event comes from the tables: a row, a dead letter that is replayed, or
// the mirror's copy of one.
func (e *Event) IsRow() bool { return e.commit == nil }

// Fill makes e a copy of ev, with the bytes in buf (len(buf) == ev.Size()), because the reader
// reuses the bytes of ev. A NULL stays nil, and an empty value stays non-nil.
func (e *Event) Fill(ev *event.Event, buf []byte, c *Commit) {
	e.Event = *ev
	e.commit, e.Digest = c, 0
	e.State = sink.Unsent
	for _, f := range [...]*[]byte{
		&e.ID, &e.Aggregate, &e.Key, &e.Type, &e.Payload, &e.Traceparent, &e.Headers, &e.Raw,
	} {
		*f, buf = carve(buf, *f)
	}
	e.Columns = nil
	if len(ev.Columns) > 0 {
		cols := e.columns[:0]
		for _, c := range ev.Columns {
			var col []byte
			col, buf = carve(buf, c)
			cols = append(cols, col)
		}
		e.columns, e.Columns = cols, cols
	}
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

// clear drops every reference of a settled event, so that the pooled event keeps no chunk alive.
func (e *Event) clear() {
	clear(e.columns)
	*e = Event{columns: e.columns[:0]}
}

// List is a list of events linked by Next. An event is in one list at a time.
type List struct{ First, Last *Event }

// Push adds an event at the end.
func (l *List) Push(e *Event) {
	e.Next = nil
	if l.First == nil {
		l.First = e
	} else {
		l.Last.Next = e
	}
	l.Last = e
}

// Pop removes the first event. An empty list keeps no event alive, because an ordering group
// outlives its rows (TestEmptyListHoldsNothing).
func (l *List) Pop() *Event {
	e := l.First
	if l.First = e.Next; l.First == nil {
		l.Last = nil
	}
	e.Next = nil
	return e
}

// PushFront adds an event before the first.
func (l *List) PushFront(e *Event) {
	e.Next = l.First
	if l.First == nil {
		l.Last = e
	}
	l.First = e
}

// PushAllFront moves all of g before the first of l.
func (l *List) PushAllFront(g *List) {
	g.Join(l)
	*l, *g = *g, List{}
}

// Join moves all of g to the end of l.
func (l *List) Join(g *List) {
	if g.First == nil {
		return
	}
	if l.First == nil {
		l.First = g.First
	} else {
		l.Last.Next = g.First
	}
	l.Last = g.Last
	*g = List{}
}
