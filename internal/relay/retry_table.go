// The interface between the line and the retry table: what each calls of the other. The mirror's
// copies of dead letters enter the lanes here too, because they come from the retry table's side
// and not from the stream.

package relay

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// RetryTable keeps the events that cannot be sent now as rows. The lanes call Defer, Read and
// Finish, and none of these blocks. The retry table answers through the Line's methods Committed,
// Found and Finished.
type RetryTable interface {
	// Defer takes over events whose rows are to be written, those of an ordering group in the order
	// of the calls. An event with Dead set becomes a dead letter. The events stay in the in-flight
	// budget, with their bytes, until Line.Committed is called with them.
	Defer(events []*inflight.Event)

	// Read asks for rows, and for walks through exchanges or topics. Each want is answered once,
	// through Line.Found.
	Read(lane int, wants []order.Want, walks []uint64)

	// Finish takes the results of rows, and requests that may be carried out. Each result that is
	// not Returned is committed, and comes back through Line.Finished.
	Finish(results []order.Result)

	// Known reports whether the retry table had the event already when this line began. The reader
	// then settles the event without sending it. A different event at the same position is not
	// known. Positions come in increasing order, with one exception: a transaction of which no
	// event was admitted may come once more, and begins again. Known may query the database, and
	// waits for it until ctx is done: its only error is that of ctx.
	Known(ctx context.Context, ev *event.Event) (bool, error)
}

// Committed settles events whose rows are committed: the tracker counts them, so the watermark may
// move, and they leave the in-flight budget. Their lanes are told. It may be called from any
// goroutine.
func (l *Line) Committed(events []*inflight.Event) {
	written := map[*lane][]order.Written{}
	for _, e := range events {
		ln := l.laneOf(e.Place.Lane)
		group, ordered := l.scope.Group(&e.Event, e.Place.ExchangeOrTopic)
		written[ln] = append(written[ln], order.Written{RowGroup: group, Position: e.Position, Ordered: ordered, Place: e.Place, Dead: e.Dead, DueIn: e.DueIn})
	}
	l.tracker.Settle(events)
	l.budget.Release(events)
	for ln, w := range written {
		ln.addToInbox(func(in *order.Input) { in.Written = append(in.Written, w...) })
	}
}

// Found gives what was found in the tables to a lane, or to all lanes (order.AllLanes). A lane that
// is created later is told which exchanges and topics all lanes are unsure about. What belongs to
// one ordering group must come in order.
func (l *Line) Found(lane int, found []order.Found) {
	give := func(in *order.Input) { in.Found = append(in.Found, found...) }
	if lane != order.AllLanes {
		l.laneOf(lane).addToInbox(give)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range found {
		switch {
		case f.Unsure:
			l.unsure[f.ExchangeOrTopic] = f
		case f.WalkEnds:
			delete(l.unsure, f.ExchangeOrTopic)
		}
	}
	for _, ln := range l.allLanes() {
		ln.addToInbox(give)
	}
}

// Finished tells a lane that results which it gave to the retry table are committed.
func (l *Line) Finished(lane int, results []order.Result) {
	l.laneOf(lane).addToInbox(func(in *order.Input) { in.Finished = append(in.Finished, results...) })
}

// Group is the ordering group of an event; 0 means that the event has no order.
func (l *Line) Group(ev *event.Event, exchangeOrTopic uint64) uint64 {
	if group, ordered := l.scope.Group(ev, exchangeOrTopic); ordered {
		return group
	}
	return 0
}

// Pauses is the registry of paused destinations, which the lanes and the retry table share.
func (l *Line) Pauses() *order.Pauses { return l.pauses }

// Stopping prepares a stop, once reading has ended: the lanes give the rows that they have back to
// the table, and the events that they keep in memory behind rows are deferred.
func (l *Line) Stopping() {
	for _, ln := range l.allLanes() {
		ln.addToInbox(func(in *order.Input) { in.Stopping = true })
	}
}

// Copies sends the mirror's copies of dead letters through the lanes. A copy has no order, and the
// retry table does not see it.
type Copies struct{ Line *Line }

// Publish publishes events and waits for their outcomes, one each. It returns soon after ctx is
// done.
func (c *Copies) Publish(ctx context.Context, events []*event.Event) []sink.Outcome {
	type answer struct {
		of  int
		out sink.Outcome
	}
	outcomes := make([]sink.Outcome, len(events))
	answers, waiting := make(chan answer, len(events)), 0 // no lane waits for the reader of answers
	for i, ev := range events {
		place, ok := c.Line.cfg.Sink.Place(ev)
		if !ok { // the topic is not known yet: the caller offers the copy again
			outcomes[i].State = sink.Unsent
			continue
		}
		waiting++
		e := &inflight.Event{Event: *ev, Place: place, Size: ev.Size(), Done: func(out sink.Outcome) { answers <- answer{i, out} }}
		c.Line.Found(place.Lane, []order.Found{{Replay: e}})
	}
	for range waiting {
		select {
		case a := <-answers:
			outcomes[a.of] = a.out
		case <-ctx.Done():
			return make([]sink.Outcome, len(events)) // all are Unknown
		}
	}
	return outcomes
}
