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
	todo  []int // indexes of the events that are not answered, in order; the batch has the first
	room  []int // the memory of todo
	phase phase

	maxRecords int // in a batch, while a record at fault is searched for; 0: no bound
	suspects   int // how many events at the front of todo may be that record
	doubted    int // how many events at the front of todo were sent, and may be stored

	sent kafkaclient.Leader  // where the batch was sent last
	same int                 // failed attempts since it was sent to another leader
	at   *kafkaclient.Broker // out: whose queue it is in; nil: the control connection has it

	// The record of a batch's trouble.
	since    time.Time   // when it began; zero: there is none
	outage   time.Time   // when no other partition took batches last; zero: one always did
	tries    int         // failed attempts since: answers, and checks of the metadata
	retries  int         // answers in a row that the batch is repeated for a few times
	renewals int         // producer ids in a row for this batch
	cut      int         // connections in a row that ended over this batch alone
	due      time.Time   // waiting: when metadata is asked for again; crowded: of the next try
	resend   time.Time   // waiting: when the batch may go to the same leader again
	fault    *sink.Fault // what to blame if the trouble does not end
}

type phase uint8

const (
	done phase = iota
	ready
	out // with a worker, or with the control connection
	waiting
	crowded // its next batch waits for room: see maxHeld
)

// reset prepares the part for a new call, without events.
func (p *part) reset() { *p = part{room: p.room, todo: p.room[:0]} }

// confirmed settles the first n events of the part.
func (l *lane) confirmed(p *part, n int) {
	for _, i := range p.todo[:n] {
		l.Outcomes[i].State = sink.Confirmed
	}
	p.pass(n)
}

// pass removes the first n events from todo: they are done.
func (p *part) pass(n int) {
	p.todo = p.todo[n:]
	p.doubted = max(0, p.doubted-n)
	if p.suspects = max(0, p.suspects-n); p.suspects == 0 {
		p.maxRecords = 0
	}
	p.endTrouble()
}

// endTrouble resets the record of a batch's trouble.
func (p *part) endTrouble() {
	p.since, p.outage, p.tries, p.same, p.retries, p.renewals, p.cut, p.fault = time.Time{}, time.Time{}, 0, 0, 0, 0, 0, nil
}

// giveUp rejects all events of the part.
func (l *lane) giveUp(pr *producer, fault *sink.Fault) {
	p := &pr.part
	pr.drop()
	for n, i := range p.todo {
		// a later event of a rejected key stays Unsent, unless it may be stored
		if n < p.doubted || !l.IsBehindRejected(i) {
			l.Reject(i, fault)
		}
	}
	p.todo, p.phase = p.todo[:0], done
}

// proceed sends a ready part: to the queue of its leader, or to the control connection for a
// producer id.
func (l *lane) proceed(pr *producer, known *kafkaclient.Metadata) {
	p := &pr.part
	if pr.batch == nil {
		if p.phase = l.fill(pr); p.phase != ready {
			return
		}
	}
	if pr.id == kafkaclient.None {
		p.phase, p.at = out, nil
		l.sink.client.Control.Identify(&pr.ProducerBatch)
		return
	}
	leader, ok := l.currentLeader(pr, known)
	switch {
	case !ok:
	case leader.Node == kafkaclient.None:
		l.postpone(pr, noAnswer(pr, errNoLeader))
	default:
		pr.seal()
		if leader != p.sent {
			p.same = 0
		}
		pr.takes.begun(time.Now())
		p.phase, p.sent, p.at = out, leader, l.sink.client.Broker(leader.Node)
		p.at.Push(&pr.ProducerBatch)
		l.posted = append(l.posted, p.at)
	}
}

// signal has the brokers' workers take what was pushed.
func (l *lane) signal() {
	for _, b := range l.posted {
		b.Signal()
	}
	clear(l.posted)
	l.posted = l.posted[:0]
}

// add adds the record of an event to the batch, which is ready then. It returns done when it does
// not fit behind others, and crowded when there is no room for it.
func (l *lane) add(pr *producer, i int) (phase, *sink.Fault) {
	m := &l.builder
	for alone := l.sink.layout.Large.Alone(l.Events[i]); ; alone = true {
		m.Enter(alone)
		result, fault := l.addRecord(pr, i)
		if alone {
			m.Forget()
		}
		if again := m.Leave(alone); fault == nil || !again {
			return result, fault
		}
	}
}

func (l *lane) addRecord(pr *producer, i int) (phase, *sink.Fault) {
	m := &l.builder
	if fault := m.Build(l.Events[i]); fault != nil {
		return done, fault
	}
	size := len(m.Key) + len(m.Value) + len(m.Headers) + kafkaclient.RecordFrame
	n, to := pr.batch.Count(), pr.batch.Size()+size
	switch {
	case n > 0 && (n == pr.part.maxRecords || to > pr.sizeLimit):
		return done, nil
	case pr.mayGrow(to):
		pr.batch.Add(&m.Record)
		return ready, nil
	case n > 0:
		return done, nil
	}
	return crowded, nil
}

// fill makes the next batch of the part's first events. It returns done when none is left, and
// crowded when the batch has to wait for room. It rejects what can never be sent. Later events of a
// rejected key stay Unsent.
func (l *lane) fill(pr *producer) phase {
	p := &pr.part
	pr.batch = l.sink.batches.Get().(*kafkaclient.Batch) //nolint:forcetypeassert // the pool has no others
	result := done
	kept, next, doubted, suspects := 0, 0, 0, 0
	for ; next < len(p.todo); next++ {
		i := p.todo[next]
		if l.Outcomes[i].State != sink.Unsent || l.IsBehindRejected(i) {
			continue
		}
		var fault *sink.Fault
		if result, fault = l.add(pr, i); fault != nil {
			l.Reject(i, fault)
			continue
		}
		if result != ready {
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
		return ready
	case result == crowded:
		p.due = time.Now().Add(pauseMin)
	default:
		result = done
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

// postpone has the part wait. fault is what to blame when the trouble does not end. The same leader
// gets the same bytes again after pauseMin, then after twice as long, up to pauseMax: it may not
// know yet that it leads, or that it does not. With too few replicas it is up to replicasPause.
func (l *lane) postpone(pr *producer, fault *sink.Fault) {
	p, now := &pr.part, time.Now()
	if p.since.IsZero() {
		p.since = now
		pr.takes.begun(now)
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
	if p.tries++; l.accuse(pr, now) {
		return
	}
	longest := pauseMax
	if p.fault.Reason == sink.TooFewReplicas {
		longest = replicasPause
	}
	p.phase, p.due, p.resend = waiting, now.Add(p.pause(now)), now.Add(min(pauseMin<<p.same, longest))
	p.same = min(p.same+1, 8)
	l.sink.client.Control.RequestMetadata(pr.Topic)
}

func (p *part) pause(now time.Time) time.Duration {
	return min(max(now.Sub(p.since)/8, pauseMin), pauseMax)
}

// accuse gives a part up after ConfirmTimeout in trouble, if the cluster as a whole is well: if
// another partition takes batches, see confirms. The time of an outage does not count: when it ends
// the partitions recover one after the other, and the first does not accuse the last. accuse needs
// two tries, because a process that was suspended for so long knows nothing about the brokers.
func (l *lane) accuse(pr *producer, now time.Time) bool {
	p := &pr.part
	// What is fresh at one check must be so at the next, pauseMax later.
	limit := max(l.sink.cfg.ConfirmTimeout, 8*pauseMax)
	patience, lasts := limit, now.Sub(p.since)
	if l.probes {
		patience = min(limit, probeTime)
	}
	own, late := topicPartition{pr.Topic, pr.Partition}, now.Add(-min(kafkaclient.SilentAfter, limit/2))
	tooFew := p.fault.Reason == sink.TooFewReplicas
	if tooFew {
		l.keepOthersKnown(now.Add(-limit / 4))
	}
	if !l.sink.confirms.others(own, l.metadata, tooFew, pr.troubled, now.Add(-limit/2), late) {
		p.outage = now
		if tooFew && lasts >= kafkaclient.SilentAfter {
			l.sink.confirms.wait(l, p.fault)
		}
		return false
	}
	l.sink.confirms.leave(l)
	if p.tries < 2 || lasts < patience || now.Sub(p.outage) < patience {
		return false
	}
	l.giveUp(pr, p.fault)
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

// recheck ends the wait of a part when there is a leader to send to.
func (l *lane) recheck(pr *producer, known *kafkaclient.Metadata) {
	p := &pr.part
	leader, ok := l.currentLeader(pr, known)
	if !ok {
		return
	}
	now := time.Now()
	able := !now.Before(p.resend)
	if pr.id != kafkaclient.None { // for an id no leader is needed
		able = leader.Node != kafkaclient.None && (able || leader != p.sent)
	}
	if able {
		p.phase = ready
		return
	}
	if now.Before(p.due) {
		return
	}
	if p.tries++; l.accuse(pr, now) {
		return
	}
	p.due = now.Add(p.pause(now))
	l.sink.client.Control.RequestMetadata(pr.Topic)
	// With too few replicas it may be an outage, which Up tells.
	if now.Sub(p.since) >= kafkaclient.SilentAfter && p.fault.Reason != sink.TooFewReplicas {
		l.shown.Store(&sink.Paused{Destination: p.fault.Destination, Reason: p.fault.Reason, Text: p.fault.Text, Since: p.since})
	}
}

// wakeAt is when a waiting part is to be checked again; zero: it does not wait.
func (p *part) wakeAt() time.Time {
	if p.phase != waiting && p.phase != crowded {
		return time.Time{}
	}
	if p.phase == waiting && p.resend.Before(p.due) && time.Now().Before(p.resend) {
		return p.resend
	}
	return p.due
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
		l.giveUp(pr, topicFault(pr.shown(), topic.Code))
		return kafkaclient.Leader{}, false
	case int(pr.Partition) >= len(topic.Partitions):
		pr.drop()
		l.todo = append(l.todo, p.todo...)
		p.todo, p.phase = p.todo[:0], done
		return kafkaclient.Leader{}, false
	}
	return topic.Partitions[pr.Partition], true
}

// noAnswer is the fault of a partition whose leader does not answer.
func noAnswer(pr *producer, why error) *sink.Fault {
	return &sink.Fault{
		Class: sink.Destination, Reason: sink.NoLeader, Destination: partitionName(pr.shown(), pr.Partition), Text: why.Error(),
	}
}

var errNoLeader = errors.New("the partition has no leader")
