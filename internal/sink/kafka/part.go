// A part: the events of one call for one partition. It makes batches of them, waits for a leader
// and for the next attempt, and decides when the destination is to blame.

package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// part is the events of the present call for one partition, and their progress. The first of them
// are in the producer's batch. Nothing here blocks.
//
//	ready ─ fill, seal, push ─▶ out ─ answer ─▶ ready: the next batch, a smaller one, or the same under a new producer
//	  ▲                                    ├─▶ waiting: for a leader, or until the same bytes may go again
//	  └────────── a leader, or time ───────┘   └─▶ done: nothing is left, the destination is at fault, or split again
//
// Its clocks, then those of its partition. A part waits with the first two, and is blamed by the
// others (accusePartition):
//
//	dueAt                  of phaseWaiting: the next look at metadata. Of phaseCrowded: the next try
//	resendAt               of phaseWaiting: from then on the same leader may get the batch again
//	trouble.since          from the first wait to endTrouble: how often metadata is asked for, and
//	                       whether the wait is shown
//	trouble.blamedSince    likewise, but each look that sees an outage sets it again: ConfirmTimeout
//	                       later the partition is blamed
//	producer.troubledSince from the call of the first wait until a batch is stored: a confirm of
//	                       another partition counts from then on, where metadata names no leader
//	partitionState         sentAt, from the first batch until the partition serves one; confirmedAt,
//	                       the last confirm: whether it takes batches, and others are to blame
type part struct {
	// places of the events that are not answered, in order; the batch has the first of them
	todo       []int
	todoMemory []int // the memory of todo
	phase      phase

	maxRecords int // in a batch, while a record at fault is searched for; 0 when none is
	suspects   int // how many events at the front of todo may have the record at fault
	doubted    int // how many events at the front of todo were sent, and may be stored

	sentLeader kafkaclient.Leader // to which the batch was last sent
	// in phaseOut, the broker in whose queue the batch is; nil when the control connection has it
	queuedAt *kafkaclient.Broker
	// in phaseWaiting, the next look at metadata; in phaseCrowded, the next try
	dueAt time.Time
	// in phaseWaiting, when the batch may go to the same leader again
	resendAt time.Time

	trouble trouble
}

// trouble is what is remembered of a batch that was not stored at its first attempt. It is
// forgotten when the batch is answered or given up.
type trouble struct {
	// what to blame if the trouble does not end; nil while the part has not waited
	fault       *sink.Fault
	since       time.Time // when the trouble began; zero while fault is nil
	blamedSince time.Time // since when no outage explains the trouble; never before since
	// failed attempts since the batch was last sent to another leader, at most 8
	triesAtLeader int
	// answers in a row after which the batch is repeated only a few times
	retries        int
	renewals       int // producer ids in a row that were tried for this batch
	cutConnections int // connections in a row that the broker ended over this batch alone
}

// phase is what a part does now, or waits for.
type phase uint8

const (
	phaseDone phase = iota // there are no events in todo, and no batch
	// it is to be sent soon, with its batch or with one that is still to be made
	phaseReady
	phaseOut // a worker, or the control connection, has its batch
	// it waits with its batch, for a leader or until resendAt, and has a fault
	phaseWaiting
	phaseCrowded // it has no batch, and its next one waits for room: see maxHeld
)

// reset empties the part: it is done, and can take events of the next call.
func (p *part) reset() { *p = part{todoMemory: p.todoMemory, todo: p.todoMemory[:0]} }

// confirmFirst settles the first n events of the part as confirmed.
func (l *lane) confirmFirst(p *part, n int) {
	for _, i := range p.todo[:n] {
		l.Outcomes[i].State = sink.Confirmed
	}
	p.dropFirst(n)
}

// dropFirst removes the first n events, which are settled, from todo.
func (p *part) dropFirst(n int) {
	p.todo = p.todo[n:]
	p.doubted = max(0, p.doubted-n)
	if p.suspects = max(0, p.suspects-n); p.suspects == 0 {
		p.maxRecords = 0
	}
	p.endTrouble()
}

// endTrouble forgets the trouble of a batch that is answered, or given up.
func (p *part) endTrouble() { p.trouble = trouble{} }

// rejectRest rejects all events of the part that are left.
func (l *lane) rejectRest(pr *producer, fault *sink.Fault) {
	p := &pr.part
	pr.dropBatch()
	for n, i := range p.todo {
		// a later event of a rejected key stays Unsent, unless it may be stored
		if n < p.doubted || !l.IsBehindRejected(i) {
			l.Reject(i, fault)
		}
	}
	p.reset()
}

// sendPart sends a part that is ready: its batch to the queue of the leader, or to the control
// connection when it needs a producer id.
func (l *lane) sendPart(pr *producer, known *kafkaclient.Metadata) {
	p := &pr.part
	if pr.batch == nil {
		if p.phase = l.fillBatch(pr); p.phase != phaseReady {
			return
		}
	}
	if pr.id == kafkaclient.None {
		p.phase, p.queuedAt = phaseOut, nil
		l.sink.client.Control.Identify(&pr.ProducerBatch)
		return
	}
	leader, ok := l.currentLeader(pr, known)
	switch {
	case !ok:
	case leader.Node == kafkaclient.None:
		l.postponePart(pr, noAnswer(pr, errNoLeader))
	default:
		pr.sealBatch()
		if leader != p.sentLeader {
			p.trouble.triesAtLeader = 0
		}
		pr.state.noteSent(time.Now())
		p.phase, p.sentLeader, p.queuedAt = phaseOut, leader, l.sink.client.Broker(leader.Node)
		p.queuedAt.Push(&pr.ProducerBatch)
		l.unsignalled = append(l.unsignalled, p.queuedAt)
	}
}

// signalBrokers wakes the workers of the brokers in whose queues batches were pushed.
func (l *lane) signalBrokers() {
	for _, b := range l.unsignalled {
		b.Signal()
	}
	clear(l.unsignalled)
	l.unsignalled = l.unsignalled[:0]
}

// addEvent adds the record of an event to the batch. It returns phaseReady when it did, phaseDone
// when the record does not fit behind the others, and phaseCrowded when there is no room for it in
// memory. The record of a large event is built while no other lane builds one, under the sink's
// LargeLock. A record that grows large although its event is small is built again, in the same way.
func (l *lane) addEvent(pr *producer, i int) (phase, *sink.Fault) {
	m, large := &l.builder, l.sink.layout.Large
	for alone := large.IsLarge(l.Events[i]); ; alone = true {
		large.Enter(&m.record, alone)
		result, fault := l.addRecord(pr, i)
		if alone {
			m.Forget()
		}
		if again := large.Leave(&m.record, alone); fault == nil || !again {
			return result, fault
		}
	}
}

// addRecord makes the record of an event, and adds it to the batch if it fits. It returns what
// addEvent returns.
func (l *lane) addRecord(pr *producer, i int) (phase, *sink.Fault) {
	m := &l.builder
	if fault := m.Build(l.Events[i]); fault != nil {
		return phaseDone, fault
	}
	size := len(m.Key) + len(m.Value) + len(m.Headers) + kafkaclient.RecordFrame
	n, to := pr.batch.Count(), pr.batch.Size()+size
	switch {
	case n > 0 && (n == pr.part.maxRecords || to > pr.sizeLimit):
		return phaseDone, nil
	case pr.takeRoom(to):
		pr.batch.Add(&m.Record)
		return phaseReady, nil
	case n > 0:
		return phaseDone, nil
	}
	return phaseCrowded, nil
}

// fillBatch makes the next batch of the part's first events. It returns phaseDone when no event is
// left, and phaseCrowded when the batch has to wait for room. It rejects events that can never be
// sent. Later events of a rejected key stay Unsent.
func (l *lane) fillBatch(pr *producer) phase {
	p := &pr.part
	pr.batch = l.sink.batches.Get().(*kafkaclient.Batch) //nolint:forcetypeassert // the pool has no others
	result := phaseDone
	kept, next, doubted, suspects := 0, 0, 0, 0
	for ; next < len(p.todo); next++ {
		i := p.todo[next]
		if l.Outcomes[i].State != sink.Unsent || l.IsBehindRejected(i) {
			continue
		}
		if pr.state.tail.stored.Load() != nil && l.isStored(pr, i) {
			continue
		}
		var fault *sink.Fault
		if result, fault = l.addEvent(pr, i); fault != nil {
			l.Reject(i, fault)
			continue
		}
		if result != phaseReady {
			break
		}
		p.todo[kept] = i
		kept++
		if next < p.doubted {
			doubted++
		}
		if next < p.suspects {
			suspects++
		}
	}
	l.builder.Forget() // the broker may take long to answer
	p.doubted = doubted + max(0, p.doubted-next)
	if p.suspects = suspects + max(0, p.suspects-next); p.suspects == 0 {
		p.maxRecords = 0
	}
	p.todo = slices.Delete(p.todo, kept, next)
	switch {
	case kept > 0:
		return phaseReady
	case result == phaseCrowded:
		p.dueAt = time.Now().Add(pauseMin)
	default:
		result = phaseDone
	}
	pr.releaseBatch()
	return result
}

// Pauses of a part in trouble. It looks at metadata again after an eighth of the time that the
// trouble has lasted, within pauseMin and pauseMax. So the end of an election is noticed at most an
// eighth of its length late, and a long outage costs four requests a second.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = 250 * time.Millisecond
	// probeTime is how long a probe of a partition that was given up may be in trouble before it is
	// given up, too.
	probeTime = time.Second
	// replicasPause is the longest pause before a leader that has too few replicas gets the batch
	// again. It is longer because the whole batch is sent.
	replicasPause = time.Second
)

// postponePart lets the part wait. fault is what to blame when the trouble does not end. The same
// leader gets the same bytes again after pauseMin, then after twice as long, up to pauseMax: it may
// not know yet that it leads, or no longer leads. With too few replicas the longest pause is
// replicasPause.
func (l *lane) postponePart(pr *producer, fault *sink.Fault) {
	p, t, now := &pr.part, &pr.part.trouble, time.Now()
	if t.since.IsZero() {
		t.since, t.blamedSince = now, now
		pr.state.noteSent(now)
	}
	if pr.troubledSince.IsZero() {
		pr.troubledSince = l.began
	}
	if fault.Class != sink.Destination || fault.Reason == "" {
		// This answer blames an event or the producer id. It is repeated only a few times, so
		// trouble that does not end has another cause. Then all events of the part are given up,
		// and the partition is blamed.
		fault = noAnswer(pr, errors.New(fault.Text))
	}
	t.fault = fault
	if l.accusePartition(pr, now) {
		return
	}
	longest := pauseMax
	if fault.Reason == sink.TooFewReplicas {
		longest = replicasPause
	}
	p.phase, p.dueAt, p.resendAt = phaseWaiting, now.Add(t.recheckPause(now)), now.Add(min(pauseMin<<t.triesAtLeader, longest))
	t.triesAtLeader = min(t.triesAtLeader+1, 8)
	l.sink.client.Control.RequestMetadata(pr.Topic)
}

// recheckPause returns how long a part waits before it looks at metadata again.
func (t *trouble) recheckPause(now time.Time) time.Duration {
	return min(max(now.Sub(t.since)/8, pauseMin), pauseMax)
}

// accusePartition gives a part up, and blames its partition, after ConfirmTimeout in trouble. It
// does so only when the cluster as a whole is well, that is, when another partition takes batches
// (see partitionStates). The time of an outage does not count: after it the partitions recover one
// after the other, and the first one must not accuse the last. The first try accuses no partition,
// because patience is never 0.
func (l *lane) accusePartition(pr *producer, now time.Time) bool {
	t := &pr.part.trouble
	// The limit covers several looks: what is fresh at one look must be fresh at the next, pauseMax
	// later.
	limit := max(l.sink.cfg.ConfirmTimeout, 8*pauseMax)
	patience := limit
	if l.probes {
		patience = min(limit, probeTime)
	}
	own, late := topicPartition{pr.Topic, pr.Partition}, now.Add(-min(kafkaclient.SilentAfter, limit/2))
	tooFew := t.fault.Reason == sink.TooFewReplicas
	if tooFew {
		l.keepOthersKnown(now.Add(-limit / 4))
	}
	if !l.sink.states.othersTakeBatches(own, l.metadata, tooFew, pr.troubledSince, now.Add(-limit/2), late) {
		t.blamedSince = now
		if tooFew && now.Sub(t.since) >= kafkaclient.SilentAfter {
			l.sink.states.beginWait(l, t.fault)
		}
		return false
	}
	l.sink.states.endWait(l)
	if now.Sub(t.blamedSince) < patience {
		return false
	}
	l.rejectRest(pr, t.fault)
	return true
}

// keepOthersKnown asks for metadata of the topics whose last answer is from before old. Only a
// fresh answer says that other partitions have all their replicas. So a part that waits for
// replicas asks for it all the time, also while other partitions take batches, because the next
// look needs it again.
func (l *lane) keepOthersKnown(old time.Time) {
	for name, topic := range l.metadata.Topics {
		if topic.At.Before(old) {
			l.sink.client.Control.RequestMetadata(name)
		}
	}
}

// recheckLeader ends the wait of a part when there is a leader to send to.
func (l *lane) recheckLeader(pr *producer, known *kafkaclient.Metadata) {
	p, t := &pr.part, &pr.part.trouble
	leader, ok := l.currentLeader(pr, known)
	if !ok {
		return
	}
	now := time.Now()
	able := !now.Before(p.resendAt)
	if pr.id != kafkaclient.None { // for a producer id no leader is needed
		able = leader.Node != kafkaclient.None && (able || leader != p.sentLeader)
	}
	if able {
		p.phase = phaseReady
		return
	}
	if now.Before(p.dueAt) || l.accusePartition(pr, now) {
		return
	}
	p.dueAt = now.Add(t.recheckPause(now))
	l.sink.client.Control.RequestMetadata(pr.Topic)
	// With too few replicas it may be an outage, which Up reports.
	if f := t.fault; now.Sub(t.since) >= kafkaclient.SilentAfter && f.Reason != sink.TooFewReplicas {
		l.shownWait.Store(&sink.Paused{Destination: f.Destination, Reason: f.Reason, Text: f.Text, Since: t.since})
	}
}

// wakeAt returns when a waiting part is to be looked at again, or zero when it does not wait.
func (p *part) wakeAt() time.Time {
	if p.phase != phaseWaiting && p.phase != phaseCrowded {
		return time.Time{}
	}
	if p.phase == phaseWaiting && p.resendAt.Before(p.dueAt) && time.Now().Before(p.resendAt) {
		return p.resendAt
	}
	return p.dueAt
}

// currentLeader returns the leader of the producer's partition. ok is false when the metadata has
// ended the part: the topic is at fault, or the partition no longer exists and the events will be
// split again.
func (l *lane) currentLeader(pr *producer, known *kafkaclient.Metadata) (leader kafkaclient.Leader, ok bool) {
	p, topic := &pr.part, known.Topics[pr.Topic]
	switch {
	case topic == nil:
		l.sink.client.Control.RequestMetadata(pr.Topic)
		return kafkaclient.Leader{Node: kafkaclient.None, Epoch: kafkaclient.None}, true
	case topic.Code != 0:
		l.rejectRest(pr, topicFault(pr.shownTopic(), topic.Code))
		return kafkaclient.Leader{}, false
	case int(pr.Partition) >= len(topic.Partitions):
		pr.dropBatch()
		l.todo = append(l.todo, p.todo...)
		p.reset()
		return kafkaclient.Leader{}, false
	}
	return topic.Partitions[pr.Partition], true
}

// noAnswer makes the fault of a partition whose leader does not answer.
func noAnswer(pr *producer, why error) *sink.Fault {
	return &sink.Fault{
		Class: sink.Destination, Reason: sink.NoLeader, Destination: partitionName(pr.shownTopic(), pr.Partition), Text: why.Error(),
	}
}

var errNoLeader = errors.New("the partition has no leader")
