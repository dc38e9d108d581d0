// The mirror's copies of dead letters on their way through the lanes.

package relay

import (
	"context"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Copies sends the mirror's copies of dead letters through the lanes. A copy is a row that has no
// order and is not counted. The retry table does not see it.
type Copies struct {
	sink sink.Sink
	line *Line

	mu  sync.Mutex
	out map[*Fed]*batch // copies that are in a lane
}

// batch is the events of one Publish.
type batch struct {
	outcomes []sink.Outcome
	index    map[*Fed]int
	left     int
	done     chan struct{} // closed when none is left
}

// NewCopies makes a Copies; Before and Through connect it to the line.
func NewCopies(s sink.Sink) *Copies { return &Copies{sink: s, out: map[*Fed]*batch{}} }

// Before wraps the retry table for the line: rows that are copies come back to Publish, and not to
// the retry table.
func (c *Copies) Before(s RetryTable) RetryTable { return beforeRetryTable{s, c} }

// Through sets the line. It is called before any Publish.
func (c *Copies) Through(l *Line) { c.line = l }

type beforeRetryTable struct {
	RetryTable
	copies *Copies
}

// Fed implements RetryTable.
func (s beforeRetryTable) Fed(rows []*Fed) {
	if rows = s.copies.take(rows); len(rows) > 0 {
		s.RetryTable.Fed(rows)
	}
}

// Publish publishes events and waits for their outcomes, one each. It returns soon after ctx is
// done.
func (c *Copies) Publish(ctx context.Context, events []*event.Event) []sink.Outcome {
	b := &batch{outcomes: make([]sink.Outcome, len(events)), index: map[*Fed]int{}, done: make(chan struct{})}
	var rows []*Fed
	for i, ev := range events {
		place, ok := c.sink.Place(ev)
		if !ok { // the topic is not known yet: the caller offers the copy again
			b.outcomes[i].State = sink.Unsent
			continue
		}
		row := &Fed{Event: *ev, Place: place, Alone: c.line.Paused(place)}
		b.index[row] = i
		rows = append(rows, row)
	}
	if b.left = len(rows); b.left == 0 {
		return b.outcomes
	}
	c.mu.Lock()
	for _, row := range rows {
		c.out[row] = b
	}
	c.mu.Unlock()
	c.line.Offer(rows)
	select {
	case <-b.done:
		return b.outcomes
	case <-ctx.Done():
		// all are Unknown. The slice is new: the lanes may still write into the first one
		return make([]sink.Outcome, len(events))
	}
}

// take takes the copies among rows, and returns the others.
func (c *Copies) take(rows []*Fed) (others []*Fed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) == 0 {
		return rows
	}
	for _, row := range rows {
		b := c.out[row]
		if b == nil {
			others = append(others, row)
			continue
		}
		delete(c.out, row)
		b.outcomes[b.index[row]] = row.Outcome
		if b.left--; b.left == 0 {
			close(b.done)
		}
	}
	return others
}
