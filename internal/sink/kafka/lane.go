// Publish: a call's events are split by partition, and each part is worked off with what its broker answers.

package kafka

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// lane publishes the calls of one lane, one call at a time. It belongs to the goroutine that calls publish; only its inbox
// is shared, with the workers that have its streams.
//
// Why order holds: the events of a key are in one lane, and, of a topic, in one part of a call: they have one partition by
// the partition count that the call was split by. Within a part they are appended in order, since one batch is under way
// at a time and the next is made when all before it is answered, without the events behind a rejected one of their key.
// Across calls they are in order since a call ends with its parts. So a partition count may change between two calls: a
// later event of a key then goes to another partition, after the earlier one was confirmed.
//
// Two events of a key have two partitions in one call only where a profile makes the records, as Debezium has it: rows that
// name their partitions, or a key whose bytes the table's new shape changes. Their parts are worked off beside each other,
// and consumers of two partitions know no order either.
type lane struct {
	sink    *Sink
	message message
	name    []byte // scratch: the name of a topic
	routes  map[string]*route
	last    *route // of the last event
	inbox   inbox
	timer   *time.Timer
	call
}

// route is where the lane's events of one topic go.
type route struct {
	topic   string
	streams []*stream // by partition; nil: nothing was sent there
}

// call is the state of the present publish call.
type call struct {
	events   []*outbox.Event
	outcomes []sink.Outcome
	todo     []int32          // events that are not in a part, in order
	parts    []*stream        // those with a part in this call
	since    int64            // the version of the metadata at its beginning
	known    *snapshot        // the metadata it last looked at
	posted   []*broker        // that have something new in their queue, and were not told
	held     map[uint64]int32 // of chains with a rejected event the first such; what is behind it is not sent
	tally    tally
}

// tally counts a call's answers for Hooks.Confirms.
type tally struct{ acks, nacks, timeouts int }

func newLane(s *Sink) *lane {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &lane{
		sink: s, message: *newMessage(s.layout), routes: map[string]*route{}, timer: timer,
		inbox: inbox{filled: make(chan struct{}, 1)},
		call:  call{held: map[uint64]int32{}},
	}
}

// publish is sink.Sink's Publish. It waits while brokers are away, and returns soon after ctx is done.
func (l *lane) publish(ctx context.Context, events []*outbox.Event, outcomes []sink.Outcome) error {
	l.begin(events, outcomes)
	defer l.finish()
	for len(l.todo) > 0 { // a second time when a topic was made anew with fewer partitions
		if err := l.learn(ctx); err != nil {
			return l.unavailable(err)
		}
		l.split()
		if err := l.work(ctx); err != nil {
			l.leave()
			return l.unavailable(err)
		}
	}
	return nil
}

// begin takes over a call.
func (l *lane) begin(events []*outbox.Event, outcomes []sink.Outcome) {
	l.events, l.outcomes, l.tally = events, outcomes, tally{}
	l.known = l.sink.known.Load()
	l.since = l.known.version
	l.todo = l.todo[:0]
	for i := range events {
		outcomes[i] = sink.Outcome{State: sink.Unsent}
		l.todo = append(l.todo, int32(i))
	}
}

// learn waits until metadata has answered for every topic of the call. An error is not taken from before the call: what
// was at fault then may be mended. Nor is it that a row names a partition which there is not: it may have been added since.
func (l *lane) learn(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.answered() {
			return nil
		}
		select {
		case <-l.known.stale:
			l.known = l.sink.known.Load()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answered reports whether all is known, and asks for what is not.
func (l *lane) answered() bool {
	layout, all, last := l.sink.layout, true, ""
	for _, i := range l.todo {
		name, fault := l.topicOf(i)
		if fault != nil || string(name) == last && !layout.names {
			continue
		}
		topic := l.known.topics[string(name)]
		old := topic != nil && topic.version <= l.since // said before the call
		if topic == nil || old && (topic.code != 0 || layout.beyond(l.events[i], len(topic.partitions))) {
			all = false
			l.sink.control.ask(string(name))
		}
		if topic != nil {
			last = topic.name
		}
	}
	return all
}

// topicOf is the name of an event's topic, good until the next topicOf.
func (l *lane) topicOf(i int32) ([]byte, *sink.Fault) {
	layout, ev := l.sink.layout, l.events[i]
	name, fault := layout.topic(ev, l.name)
	if layout.made(ev) {
		l.name = name[:0]
	}
	return name, fault
}

// split makes parts of the events of todo.
func (l *lane) split() {
	slices.Sort(l.todo) // parts that ended may have given theirs back
	clear(l.parts)
	l.parts = l.parts[:0]
	var topic *topicState
	for _, i := range l.todo {
		ev := l.events[i]
		if l.outcomes[i].State != sink.Unsent || l.isHeld(i) {
			continue
		}
		name, fault := l.topicOf(i)
		if fault != nil {
			l.reject(i, fault)
			continue
		}
		if topic == nil || topic.name != string(name) {
			topic = l.known.topics[string(name)]
		}
		if topic.code != 0 {
			fault := topicFault(l.sink.layout.shown(topic.name), topic.code)
			l.reject(i, fault)
			l.sink.paused.refused(topic.name, none, fault)
			continue
		}
		partition := l.sink.layout.partition(ev, int32(len(topic.partitions)))
		if int(partition) >= len(topic.partitions) {
			l.reject(i, noPartition(l.sink.layout.shown(topic.name), len(topic.partitions)))
			continue
		}
		s := l.stream(topic.name, partition)
		p := &s.part
		if len(p.todo) == 0 {
			p.reset()
			l.parts = append(l.parts, s)
		}
		p.todo = append(p.todo, i)
	}
	l.todo = l.todo[:0]
	for _, s := range l.parts {
		s.part.room = s.part.todo
		s.part.phase = out
		if !s.late {
			l.resume(s)
		}
	}
}

// reset makes the part one of a new call, without events.
func (p *part) reset() { *p = part{room: p.room, todo: p.room[:0], at: p.at} }

// stream is the lane's way to a partition.
func (l *lane) stream(topic string, partition int32) *stream {
	r := l.last
	if r == nil || r.topic != topic {
		if r = l.routes[topic]; r == nil {
			r = &route{topic: topic}
			l.routes[topic] = r
			l.sink.control.want(topic)
		}
		l.last = r
	}
	for int(partition) >= len(r.streams) {
		r.streams = append(r.streams, nil)
	}
	if r.streams[partition] == nil {
		r.streams[partition] = newStream(l, topic, partition)
	}
	return r.streams[partition]
}

// work drives the parts until all are done.
func (l *lane) work(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		known := l.sink.known.Load()
		moved := known != l.known
		l.known = known
		open, due := false, time.Time{}
		for _, s := range l.parts {
			l.step(s, moved)
			open = open || s.part.phase != done
			if t := s.part.wakes(); due.IsZero() || !t.IsZero() && t.Before(due) {
				due = t
			}
		}
		for _, b := range l.posted {
			b.signal()
		}
		clear(l.posted)
		l.posted = l.posted[:0]
		if !open {
			return nil
		}
		if err := l.wait(ctx, due); err != nil {
			return err
		}
		for _, s := range l.inbox.take() {
			l.apply(s)
		}
	}
}

// step does what can be done about a part now. moved says that the metadata has changed.
func (l *lane) step(s *stream, moved bool) {
	p := &s.part
	if p.phase == out && moved && !s.late && p.at != nil {
		// In the queue of a broker that does not lead any more; a worker looks after what it has taken itself.
		if leader, ok := l.known.leader(s.topic, s.partition); ok && leader.node != p.sent.node && p.at.withdraw(s) {
			p.phase = ready
		}
	}
	if p.phase == waiting {
		l.look(s, l.known)
	}
	if p.phase == ready {
		l.proceed(s, l.known)
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
	case <-l.known.stale:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// chain is what a rejection holds: the key, in the topic. In another one its events go on: with ordering commit they would be
// overtaken there by those of other keys.
func (l *lane) chain(i int32) uint64 {
	name, _ := l.topicOf(i)
	return l.events[i].Hash ^ sink.UnitOf(name)
}

// reject refuses an event; what is later of its key and topic is held back in this call.
func (l *lane) reject(i int32, fault *sink.Fault) {
	if l.outcomes[i].State != sink.Unsent {
		return
	}
	l.outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: fault}
	if ev := l.events[i]; ev.Ordered {
		if first, ok := l.held[l.chain(i)]; !ok || i < first {
			l.held[l.chain(i)] = i
		}
	}
}

// isHeld reports whether an earlier event of the same key and topic was rejected in this call.
func (l *lane) isHeld(i int32) bool {
	if len(l.held) == 0 {
		return false
	}
	first, held := l.held[l.chain(i)]
	return held && first < i && l.events[i].Ordered
}
