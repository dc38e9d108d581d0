// The events of one call that go to one partition: their batches, and how they wait for a leader,
// for the next attempt, or until their destination is blamed.

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
type part struct {
	todo       []int // events that are not answered, by place and in order; the batch has the first
	todoMemory []int // the memory of todo
	phase      phase

	maxRecords int // in a batch, while a record at fault is searched for; 0: no bound
	suspects   int // how many events at the front of todo may be that record
	doubted    int // how many events at the front of todo were sent, and may be stored

	sentLeader    kafkaclient.Leader  // where the batch was sent last
	triesAtLeader int                 // failed attempts since it was sent to another leader
	queuedAt      *kafkaclient.Broker // out: whose queue has it; nil: the control connection has it

	// The record of a batch's trouble.
	troubleSince   time.Time   // when it began; zero: there is none
	outageSeen     time.Time   // when no other partition took batches last; zero: one always did
	tries          int         // failed attempts since: answers, and checks of the metadata
	retries        int         // answers in a row that the batch is repeated for a few times
	renewals       int         // producer ids in a row for this batch
	cutConnections int         // connections in a row that ended over this batch alone
	dueAt          time.Time   // waiting: of the next look at metadata; crowded: of the next try
	resendAt       time.Time   // waiting: when the batch may go to the same leader again
	fault          *sink.Fault // what to blame if the trouble does not end
}

type phase uint8

const (
	phaseDone phase = iota
	phaseReady
	phaseOut // with a worker, or with the control connection
	phaseWaiting
	phaseCrowded // its next batch waits for room: see maxHeld
)

// reset prepares the part for a new call, without events.
func (p *part) reset() { *p = part{todoMemory: p.todoMemory, todo: p.todoMemory[:0]} }

// confirmFirst settles the first n events of the part.
func (l *lane) confirmFirst(p *part, n int) {
	for _, i := range p.todo[:n] {
		l.Outcomes[i].State = sink.Confirmed
	}
	p.dropFirst(n)
}

// dropFirst removes the first n events from todo: they are done.
func (p *part) dropFirst(n int) {
	p.todo = p.todo[n:]
	p.doubted = max(0, p.doubted-n)
	if p.suspects = max(0, p.suspects-n); p.suspects == 0 {
		p.maxRecords = 0
	}
	p.endTrouble()
}

// endTrouble resets the record of a batch's trouble.
func (p *part) endTrouble() {
	p.troubleSince, p.outageSeen, p.tries, p.triesAtLeader, p.retries, p.renewals, p.cutConnections, p.fault = time.Time{}, time.Time{}, 0, 0, 0, 0, 0, nil
}

// rejectRest rejects all events of the part.
func (l *lane) rejectRest(pr *producer, fault *sink.Fault) {
	p := &pr.part
	pr.dropBatch()
	for n, i := range p.todo {
		// a later event of a rejected key stays Unsent, unless it may be stored
		if n < p.doubted || !l.IsBehindRejected(i) {
			l.Reject(i, fault)
		}
	}
	p.todo, p.phase = p.todo[:0], phaseDone
}

// sendPart sends a ready part: to the queue of its leader, or to the control connection for a
// producer id.
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
			p.triesAtLeader = 0
		}
		pr.state.noteSent(time.Now())
		p.phase, p.sentLeader, p.queuedAt = phaseOut, leader, l.sink.client.Broker(leader.Node)
		p.queuedAt.Push(&pr.ProducerBatch)
		l.unsignalled = append(l.unsignalled, p.queuedAt)
	}
}

// signalBrokers has the brokers' workers take what was pushed.
func (l *lane) signalBrokers() {
	for _, b := range l.unsignalled {
		b.Signal()
	}
	clear(l.unsignalled)
	l.unsignalled = l.unsignalled[:0]
}

// addEvent adds the record of an event to the batch, which is ready then. It returns phaseDone when
// it does not fit behind others, and phaseCrowded when there is no room for it.
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

// fillBatch makes the next batch of the part's first events. It returns phaseDone when none is
// left, and phaseCrowded when the batch has to wait for room. It rejects what can never be sent.
// Later events of a rejected key stay Unsent.
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
	p.doubted, p.suspects = doubted+max(0, p.doubted-next), suspects+max(0, p.suspects-next)
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

// A part in trouble asks for metadata again after an eighth of the trouble's time, within these
// bounds. So the end of an election is noticed at most an eighth of its length late, and a long
// outage costs four requests a second.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = 250 * time.Millisecond
	// a probe of a partition that was given up is given up after this time
	probeTime = time.Second
	// The whole batch is sent again to a leader that has too few replicas, so it is less often.
	replicasPause = time.Second
)

// postponePart has the part wait. fault is what to blame when the trouble does not end. The same
// leader gets the same bytes again after pauseMin, then after twice as long, up to pauseMax: it may
// not know yet that it leads, or that it does not. With too few replicas it is up to replicasPause.
func (l *lane) postponePart(pr *producer, fault *sink.Fault) {
	p, now := &pr.part, time.Now()
	if p.troubleSince.IsZero() {
		p.troubleSince = now
		pr.state.noteSent(now)
	}
	if pr.troubled.IsZero() {
		pr.troubled = l.began
	}
	if fault.Class != sink.Destination || fault.Reason == "" {
		// This answer blames an event, or the producer id. It is repeated a few times only, so
		// trouble that does not end has another cause. Then all events of the part are given up,
		// and the partition is blamed.
		fault = noAnswer(pr, errors.New(fault.Text))
	}
	p.fault = fault
	if p.tries++; l.accusePartition(pr, now) {
		return
	}
	longest := pauseMax
	if p.fault.Reason == sink.TooFewReplicas {
		longest = replicasPause
	}
	p.phase, p.dueAt, p.resendAt = phaseWaiting, now.Add(p.recheckPause(now)), now.Add(min(pauseMin<<p.triesAtLeader, longest))
	p.triesAtLeader = min(p.triesAtLeader+1, 8)
	l.sink.client.Control.RequestMetadata(pr.Topic)
}

func (p *part) recheckPause(now time.Time) time.Duration {
	return min(max(now.Sub(p.troubleSince)/8, pauseMin), pauseMax)
}

// accusePartition gives a part up after ConfirmTimeout in trouble, if the cluster as a whole is
// well: if another partition takes batches, see partitionStates. The time of an outage does not
// count: when it ends the partitions recover one after the other, and the first does not accuse the
// last. It needs two tries, because a process that was suspended for so long knows nothing about
// the brokers.
func (l *lane) accusePartition(pr *producer, now time.Time) bool {
	p := &pr.part
	// What is fresh at one check must be so at the next, pauseMax later.
	limit := max(l.sink.cfg.ConfirmTimeout, 8*pauseMax)
	patience, lasts := limit, now.Sub(p.troubleSince)
	if l.probes {
		patience = min(limit, probeTime)
	}
	own, late := topicPartition{pr.Topic, pr.Partition}, now.Add(-min(kafkaclient.SilentAfter, limit/2))
	tooFew := p.fault.Reason == sink.TooFewReplicas
	if tooFew {
		l.keepOthersKnown(now.Add(-limit / 4))
	}
	if !l.sink.states.othersTakeBatches(own, l.metadata, tooFew, pr.troubled, now.Add(-limit/2), late) {
		p.outageSeen = now
		if tooFew && lasts >= kafkaclient.SilentAfter {
			l.sink.states.beginWait(l, p.fault)
		}
		return false
	}
	l.sink.states.endWait(l)
	if p.tries < 2 || lasts < patience || now.Sub(p.outageSeen) < patience {
		return false
	}
	l.rejectRest(pr, p.fault)
	return true
}

// keepOthersKnown asks for the metadata of the topics whose last answer is from before old. Only a
// fresh answer says that others have all their replicas, so it is asked for as long as a part waits
// for replicas: also while others take batches, because the next look needs to see them again.
func (l *lane) keepOthersKnown(old time.Time) {
	for name, topic := range l.metadata.Topics {
		if topic.At.Before(old) {
			l.sink.client.Control.RequestMetadata(name)
		}
	}
}

// recheckLeader ends the wait of a part when there is a leader to send to.
func (l *lane) recheckLeader(pr *producer, known *kafkaclient.Metadata) {
	p := &pr.part
	leader, ok := l.currentLeader(pr, known)
	if !ok {
		return
	}
	now := time.Now()
	able := !now.Before(p.resendAt)
	if pr.id != kafkaclient.None { // for an id no leader is needed
		able = leader.Node != kafkaclient.None && (able || leader != p.sentLeader)
	}
	if able {
		p.phase = phaseReady
		return
	}
	if now.Before(p.dueAt) {
		return
	}
	if p.tries++; l.accusePartition(pr, now) {
		return
	}
	p.dueAt = now.Add(p.recheckPause(now))
	l.sink.client.Control.RequestMetadata(pr.Topic)
	// With too few replicas it may be an outage, which Up tells.
	if now.Sub(p.troubleSince) >= kafkaclient.SilentAfter && p.fault.Reason != sink.TooFewReplicas {
		l.shownWait.Store(&sink.Paused{Destination: p.fault.Destination, Reason: p.fault.Reason, Text: p.fault.Text, Since: p.troubleSince})
	}
}

// wakeAt is when a waiting part is to be checked again; zero: it does not wait.
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
// ended the part: the topic is at fault, or the partition is gone and the events will be split
// again.
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
		p.todo, p.phase = p.todo[:0], phaseDone
		return kafkaclient.Leader{}, false
	}
	return topic.Partitions[pr.Partition], true
}

// noAnswer is the fault of a partition whose leader does not answer.
func noAnswer(pr *producer, why error) *sink.Fault {
	return &sink.Fault{
		Class: sink.Destination, Reason: sink.NoLeader, Destination: partitionName(pr.shownTopic(), pr.Partition), Text: why.Error(),
	}
}

var errNoLeader = errors.New("the partition has no leader")
