// Publish: a call's events are split by partition, and each part proceeds by the answers of its
// broker.

package kafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// lane publishes the calls of one lane, one call at a time. It belongs to the goroutine that calls
// publish; only its inbox is shared, with the workers that have its producers.
//
// Why order holds. All events of a key are in one lane. In a call, those for one topic are in one
// part, because the whole call is split by one partition count. A part is appended in order: one
// batch is under way at a time, and the next is made when the previous one is answered. It leaves
// out events behind a rejected event of their key. A call ends after all its parts, so calls are in
// order too. When the partition count changes between two calls, a later event of a key may go to
// another partition, after the earlier one was confirmed.
//
// There is one exception. A profile may give two events of a key two partitions in one call, as
// Debezium does: rows name their partitions, or the table's new shape changes the key's bytes.
// Their parts proceed at the same time. Consumers of two partitions have no order between them
// either.
type lane struct {
	sink    *Sink
	builder record.Builder
	placed  sink.Record // scratch: where an event goes
	routes  map[string]*route
	last    *route // of the last event
	inbox   inbox
	timer   *time.Timer
	probes  bool                        // it has one call, of one event: see Sink.Probe
	shown   atomic.Pointer[sink.Paused] // what the call waits for; nil: for nothing long
	call
}

// route is where the lane's events of one topic go.
type route struct {
	topic     string
	producers []*producer // by partition; nil: nothing was sent there
}

func newLane(s *Sink) *lane {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	l := &lane{
		sink: s, builder: *record.NewBuilder(s.layout), routes: map[string]*route{}, timer: timer,
		inbox: inbox{filled: make(chan struct{}, 1)},
	}
	l.Call = sink.NewCall(s.cfg.Confirms, l.topicOf)
	return l
}

// addLane makes a lane and returns its number.
func (s *Sink) addLane() int32 {
	s.lanesMu.Lock()
	defer s.lanesMu.Unlock()
	s.lanes = append(s.lanes, newLane(s))
	return int32(len(s.lanes) - 1)
}

// publish is sink.Sink's Publish. It waits while brokers are away, and returns soon after ctx is
// done.
func (l *lane) publish(ctx context.Context, events []*event.Event, outcomes []sink.Outcome) error {
	l.begin(events, outcomes)
	defer l.finish()
	for len(l.todo) > 0 { // a second time when a topic was re-created with fewer partitions
		if err := l.awaitMetadata(ctx); err != nil {
			return l.Unavailable(err)
		}
		l.split()
		if err := l.work(ctx); err != nil {
			l.interrupt()
			return l.Unavailable(err)
		}
	}
	return nil
}

// begin starts a call.
func (l *lane) begin(events []*event.Event, outcomes []sink.Outcome) {
	l.Begin(events, outcomes)
	l.began = time.Now()
	l.metadata = l.sink.client.Metadata.Load()
	l.since = l.metadata.Version
	l.todo = l.todo[:0]
	for i := range events {
		l.todo = append(l.todo, i)
	}
}

// finish releases the call's events.
func (l *lane) finish() {
	l.End()
	l.sink.confirms.leave(l)
	l.shown.Store(nil)
	l.builder.Forget()
	l.placed.Forget()
	clear(l.parts)
	l.parts, l.metadata = l.parts[:0], nil
}

// work drives the parts until all are done.
func (l *lane) work(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		known := l.sink.client.Metadata.Load()
		moved := known != l.metadata
		l.metadata = known
		open, due := false, time.Time{}
		for _, pr := range l.parts {
			l.step(pr, moved)
			open = open || pr.part.phase != done
			if t := pr.part.wakeAt(); due.IsZero() || !t.IsZero() && t.Before(due) {
				due = t
			}
		}
		l.signal()
		if !open {
			return nil
		}
		if err := l.wait(ctx, due); err != nil {
			return err
		}
		for _, pr := range l.inbox.take() {
			l.apply(pr)
		}
	}
}

// step advances a part as far as it can go now. moved: the metadata has changed.
func (l *lane) step(pr *producer, moved bool) {
	p := &pr.part
	if p.phase == out && moved && p.at != nil {
		// The batch may wait in the queue of a broker that no longer leads. What a worker has
		// taken, it handles itself.
		if leader, ok := l.metadata.Leader(pr.Topic, pr.Partition); ok && leader.Node != p.sent.Node && p.at.Withdraw(&pr.ProducerBatch) {
			p.phase = ready
		}
	}
	if p.phase == waiting {
		l.recheck(pr, l.metadata)
	}
	if p.phase == crowded && !time.Now().Before(p.due) {
		p.phase = ready
	}
	if p.phase == ready {
		l.proceed(pr, l.metadata)
	}
}

// wait waits for an answer, other metadata, or the time when a part is due.
func (l *lane) wait(ctx context.Context, due time.Time) error {
	var timer <-chan time.Time
	if !due.IsZero() {
		l.timer.Reset(time.Until(due))
		defer l.timer.Stop()
		timer = l.timer.C
	}
	select {
	case <-l.inbox.filled:
	case <-l.metadata.Stale:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
