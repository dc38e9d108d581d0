// A part that waits: for a leader, for the next attempt, or until its destination is blamed.

package kafka

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

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
	own, late := topicPartition{pr.Topic, pr.Partition}, now.Add(-min(client.SilentAfter, limit/2))
	tooFew := p.fault.Reason == sink.TooFewReplicas
	if tooFew {
		l.keepOthersKnown(now.Add(-limit / 4))
	}
	if !l.sink.confirms.others(own, l.metadata, tooFew, pr.troubled, now.Add(-limit/2), late) {
		p.outage = now
		if tooFew && lasts >= client.SilentAfter {
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
func (l *lane) recheck(pr *producer, known *client.Metadata) {
	p := &pr.part
	leader, ok := l.currentLeader(pr, known)
	if !ok {
		return
	}
	now := time.Now()
	able := !now.Before(p.resend)
	if pr.id != client.None { // for an id no leader is needed
		able = leader.Node != client.None && (able || leader != p.sent)
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
	if now.Sub(p.since) >= client.SilentAfter && p.fault.Reason != sink.TooFewReplicas {
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
func (l *lane) currentLeader(pr *producer, known *client.Metadata) (leader client.Leader, ok bool) {
	p, topic := &pr.part, known.Topics[pr.Topic]
	switch {
	case topic == nil:
		l.sink.client.Control.RequestMetadata(pr.Topic)
		return client.Leader{Node: client.None, Epoch: client.None}, true
	case topic.Code != 0:
		l.giveUp(pr, topicFault(pr.shown(), topic.Code))
		return client.Leader{}, false
	case int(pr.Partition) >= len(topic.Partitions):
		pr.drop()
		l.todo = append(l.todo, p.todo...)
		p.todo, p.phase = p.todo[:0], done
		return client.Leader{}, false
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
