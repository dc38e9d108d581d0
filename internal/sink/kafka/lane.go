// How a call is published: a lane splits its events by partition into parts, and advances each part
// by the answers of its broker.

package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
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
	sink         *Sink
	builder      builder
	placeScratch sink.Record // for where an event goes
	routes       map[string]*route
	lastRoute    *route // of the last event that was placed
	inbox        inbox
	timer        *time.Timer
	probes       bool // it has one call, of one event: see Sink.Probe
	// what the call waits for; nil when it does not wait for long
	shownWait atomic.Pointer[sink.Paused]
	call
}

// route is where a lane's events of one topic go.
type route struct {
	topic     string
	producers []*producer // by partition; nil for a partition to which nothing was sent
}

func newLane(s *Sink) *lane {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	l := &lane{
		sink: s, builder: *newBuilder(s.layout), routes: map[string]*route{}, timer: timer,
		inbox: inbox{filled: make(chan struct{}, 1)},
	}
	l.Call = sink.NewCall(s.cfg.Confirms, l.topicOf)
	return l
}

// addLane makes a lane and returns its number. placement calls it at the first event of the lane.
func (s *Sink) addLane() int32 {
	s.lanesMu.Lock()
	defer s.lanesMu.Unlock()
	s.lanes = append(s.lanes, newLane(s))
	return int32(len(s.lanes) - 1)
}

// publish is Publish of sink.Sink for this lane. It waits while brokers are away, and returns soon
// after ctx is done.
func (l *lane) publish(ctx context.Context, events []*event.Event, outcomes []sink.Outcome) error {
	l.beginCall(events, outcomes)
	defer l.endCall()
	for len(l.todo) > 0 { // again when a topic was re-created with fewer partitions
		if err := l.awaitMetadata(ctx); err != nil {
			return l.Unavailable(err)
		}
		l.splitIntoParts()
		l.readTails(ctx)
		if err := l.driveParts(ctx); err != nil {
			l.interruptParts()
			return l.Unavailable(err)
		}
	}
	return nil
}

// beginCall starts a call with these events.
func (l *lane) beginCall(events []*event.Event, outcomes []sink.Outcome) {
	l.Begin(events, outcomes)
	l.began = time.Now()
	l.metadata = l.sink.client.Metadata.Load()
	l.metadataAtBegin = l.metadata.Version
	l.todo = l.todo[:0]
	for i := range events {
		l.todo = append(l.todo, i)
	}
	l.destinations = slices.Grow(l.destinations[:0], len(events))[:len(events)]
}

// endCall ends a call and drops the references to its events.
func (l *lane) endCall() {
	l.End()
	l.sink.states.endWait(l)
	l.shownWait.Store(nil)
	l.builder.Forget()
	l.placeScratch.Forget()
	clear(l.parts)
	clear(l.destinations)
	l.parts, l.metadata = l.parts[:0], nil
}

// driveParts advances the parts until all are done.
func (l *lane) driveParts(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		known := l.sink.client.Metadata.Load()
		moved := known != l.metadata
		l.metadata = known
		open, due := false, time.Time{}
		for _, pr := range l.parts {
			l.advancePart(pr, moved)
			open = open || pr.part.phase != phaseDone
			if t := pr.part.wakeAt(); due.IsZero() || !t.IsZero() && t.Before(due) {
				due = t
			}
		}
		if l.sink.partsAdvanced != nil {
			l.sink.partsAdvanced(l.parts)
		}
		l.signalBrokers()
		if !open {
			return nil
		}
		if err := l.waitForChange(ctx, due); err != nil {
			return err
		}
		for _, pr := range l.inbox.takeProducers() {
			l.applyAnswer(pr)
		}
	}
}

// advancePart advances a part as far as that is possible now. moved says that there is newer
// metadata.
func (l *lane) advancePart(pr *producer, moved bool) {
	p := &pr.part
	if p.phase == phaseOut && moved && p.queuedAt != nil {
		// The batch may wait in the queue of a broker that no longer leads. A batch that a worker
		// has taken is handled by that worker.
		if leader, ok := l.metadata.Leader(pr.Topic, pr.Partition); ok && leader.Node != p.sentLeader.Node && p.queuedAt.Withdraw(&pr.ProducerBatch) {
			p.phase = phaseReady
		}
	}
	if p.phase == phaseWaiting {
		l.recheckLeader(pr, l.metadata)
	}
	if p.phase == phaseCrowded && !time.Now().Before(p.dueAt) {
		p.phase = phaseReady
	}
	if p.phase == phaseReady {
		l.sendPart(pr, l.metadata)
	}
}

// waitForChange waits for an answer, for newer metadata, or until a part is due.
func (l *lane) waitForChange(ctx context.Context, due time.Time) error {
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

// call is the state of the present publish call.
type call struct {
	sink.Call
	todo []int // places of the events that are in no part, in order
	// by the place of an event; of those in todo, as isMetadataKnown found them
	destinations    []destination
	parts           []*producer // the producers with a part in this call
	began           time.Time
	metadataAtBegin int64                 // the version of the metadata when the call began
	metadata        *kafkaclient.Metadata // the metadata it last used
	// brokers with new batches in their queue that were not signalled yet
	unsignalled []*kafkaclient.Broker
}

// topicName places an event in l.placeScratch, and returns the name of its topic, which is valid
// until the next call of topicName.
func (l *lane) topicName(ev *event.Event) ([]byte, *sink.Fault) {
	return l.sink.layout.Place(ev, &l.placeScratch)
}

// topicOf returns the digest of the name of an event's topic.
func (l *lane) topicOf(ev *event.Event) uint64 {
	name, _ := l.topicName(ev)
	return sink.ExchangeOrTopicOf(name)
}

// inbox holds the producers that the client has given back to a lane.
type inbox struct {
	mu        sync.Mutex
	producers []*producer
	lastTaken []*producer   // what the last takeProducers returned; its memory is used again
	filled    chan struct{} // has room for one signal
}

// addProducer gives a producer back to its lane, with its answer. Workers call it.
func (in *inbox) addProducer(pr *producer) {
	in.mu.Lock()
	in.producers = append(in.producers, pr)
	in.mu.Unlock()
	kafkaclient.Notify(in.filled)
}

// takeProducers returns the producers that came back. They are valid until the next call.
func (in *inbox) takeProducers() []*producer {
	in.mu.Lock()
	defer in.mu.Unlock()
	clear(in.lastTaken)
	in.producers, in.lastTaken = in.lastTaken[:0], in.producers
	return in.lastTaken
}

// awaitMetadata waits until metadata has answered for every topic of the call. An answer with an
// error must be newer than the call, because an older fault may be fixed by now. So must be the
// answer for a row that names a missing partition, because that may have been added.
func (l *lane) awaitMetadata(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.isMetadataKnown() {
			return nil
		}
		select {
		case <-l.metadata.Stale:
			l.metadata = l.sink.client.Metadata.Load()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isMetadataKnown places the events in todo, and reports whether metadata is known for all their
// topics. It asks for what is missing.
func (l *lane) isMetadataKnown() bool {
	all := true
	var topic *kafkaclient.Topic
	for _, i := range l.todo {
		to := &l.destinations[i]
		name, fault := l.topicName(l.Events[i])
		if *to = (destination{fault: fault}); fault != nil {
			continue
		}
		if topic == nil || topic.Name != string(name) {
			topic = l.metadata.Topics[string(name)]
		}
		if topic != nil && topic.Code == 0 {
			to.partition = PartitionOf(l.Events[i], &l.placeScratch, int32(len(topic.Partitions)))
		}
		to.topic = topic
		if topic == nil || topic.Version <= l.metadataAtBegin && (topic.Code != 0 || to.isPartitionMissing()) {
			all = false
			l.sink.client.Control.RequestMetadata(string(name))
		}
	}
	l.placeScratch.Forget() // the answers may take long
	return all
}

// destination is where an event goes.
type destination struct {
	topic     *kafkaclient.Topic
	partition int32
	fault     *sink.Fault // why the event has no destination; nil when it has one
}

// isPartitionMissing reports whether the event's row names a partition that its topic does not
// have.
func (d *destination) isPartitionMissing() bool { return int(d.partition) >= len(d.topic.Partitions) }

// splitIntoParts makes parts of the events in todo, which isMetadataKnown has placed.
func (l *lane) splitIntoParts() {
	slices.Sort(l.todo) // parts may have given events back
	clear(l.parts)
	l.parts = l.parts[:0]
	for _, i := range l.todo {
		if l.Outcomes[i].State != sink.Unsent || l.IsBehindRejected(i) {
			continue
		}
		to := &l.destinations[i]
		switch {
		case to.fault != nil:
			l.Reject(i, to.fault)
			continue
		case to.topic.Code != 0:
			l.Reject(i, topicFault(l.sink.layout.Shown(to.topic.Name), to.topic.Code))
			continue
		case to.isPartitionMissing():
			l.Reject(i, noPartition(l.sink.layout.Shown(to.topic.Name), len(to.topic.Partitions)))
			continue
		}
		pr := l.producerFor(to.topic.Name, to.partition)
		p := &pr.part
		if len(p.todo) == 0 {
			p.reset()
			l.parts = append(l.parts, pr)
		}
		p.todo = append(p.todo, i)
	}
	l.todo = l.todo[:0]
	for _, pr := range l.parts {
		pr.part.todoMemory = pr.part.todo
		pr.part.phase = phaseReady
	}
}

// producerFor returns the lane's producer for a partition, and makes it at the first call.
func (l *lane) producerFor(topic string, partition int32) *producer {
	r := l.lastRoute
	if r == nil || r.topic != topic {
		if r = l.routes[topic]; r == nil {
			r = &route{topic: topic}
			l.routes[topic] = r
			l.sink.client.Control.KeepFresh(topic)
		}
		l.lastRoute = r
	}
	for int(partition) >= len(r.producers) {
		r.producers = append(r.producers, nil)
	}
	if r.producers[partition] == nil {
		r.producers[partition] = newProducer(l, topic, partition)
	}
	return r.producers[partition]
}

// interruptParts ends the parts of a call whose context is done, and gives up their batches. Their
// events come again in another call, under other sequence numbers.
func (l *lane) interruptParts() {
	for _, pr := range l.inbox.takeProducers() {
		l.applyAnswer(pr)
	}
	for _, pr := range l.parts {
		l.interruptPart(pr)
	}
	l.signalBrokers() // most likely the batches that were pushed are withdrawn by now
}

func (l *lane) interruptPart(pr *producer) {
	p := &pr.part
	switch {
	case p.phase == phaseDone:
		return
	case p.phase != phaseOut || l.withdrawBatch(pr):
		pr.dropBatch()
	default:
		if p.queuedAt != nil {
			p.doubted = max(p.doubted, pr.batch.Count())
		}
		pr.abandoned = true
		pr.releaseRoom() // it may take long until the batch comes back
		next := newProducer(l, pr.Topic, pr.Partition)
		next.foundAt, next.foundIn = pr.foundAt, pr.foundIn
		l.routes[pr.Topic].producers[pr.Partition] = next
	}
	for _, i := range p.todo[:p.doubted] {
		if o := &l.Outcomes[i]; o.State == sink.Unsent {
			o.State = sink.Unknown
		}
	}
	p.reset()
}

// withdrawBatch takes the producer's batch back from the client. It returns false when a worker has
// it already.
func (l *lane) withdrawBatch(pr *producer) bool {
	if pr.part.queuedAt == nil {
		return l.sink.client.Control.Withdraw(&pr.ProducerBatch)
	}
	return pr.part.queuedAt.Withdraw(&pr.ProducerBatch)
}
