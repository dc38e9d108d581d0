// A part that waits: for a leader, for the next attempt, or until its destination is blamed.

package kafka

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// A part in trouble asks for metadata again after an eighth of the time that the trouble has
// lasted, within these bounds: the end of an election is noticed at most an eighth of its length
// late, and a long outage costs four requests a second.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = 250 * time.Millisecond
	// A partition that was given up gets only this long the next time, until it stores something.
	probeTime = time.Second
)

// postpone has the part wait. fault is what is to blame when the trouble does not end. The same
// leader gets the same bytes again after pauseMin, then after twice as long, up to pauseMax: it may
// not know yet that it leads, or that it does not.
func (l *lane) postpone(s *producer, fault *sink.Fault) {
	p, now := &s.part, time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if fault.Class != sink.Destination || fault.Reason == "" {
		// It may be of one event, or of the producer. But trouble that does not end has another
		// cause: the repetitions of this answer are bounded, and all events of the part are given
		// up, so no event is to be blamed.
		fault = noAnswer(s, errors.New(fault.Text))
	}
	p.fault = fault
	if p.tries++; l.accuse(s, now) {
		return
	}
	p.phase, p.due, p.resend = waiting, now.Add(p.pause(now)), now.Add(min(pauseMin<<p.same, pauseMax))
	p.same = min(p.same+1, 8)
	l.sink.client.Control.Ask(s.Topic)
}

func (p *part) pause(now time.Time) time.Duration {
	return min(max(now.Sub(p.since)/8, pauseMin), pauseMax)
}

// accuse gives a part up that has been in trouble for ConfirmTimeout, when other batches were
// confirmed in the latter half of that time: so the cluster is not down. The same holds when the
// cluster itself has said, at most half of that time ago, that the partition has no leader, and
// others were confirmed since the trouble began: there may be nobody left to confirm anything when
// every lane has events for that partition. It takes two tries at least, because a process that was
// suspended for so long knows nothing about the brokers.
func (l *lane) accuse(s *producer, now time.Time) bool {
	p, limit := &s.part, l.sink.cfg.ConfirmTimeout
	patience := limit
	if s.accused {
		patience = min(limit, probeTime)
	}
	if p.tries < 2 || now.Sub(p.since) < patience {
		return false
	}
	others, recent := time.Unix(0, l.sink.client.LastConfirm.Load()), now.Add(-limit/2)
	if others.Before(recent) && (others.Before(p.since) || l.metadata.At.Before(recent) || !l.metadata.Leaderless(s.Topic, s.Partition)) {
		return false
	}
	s.accused = true
	l.giveUp(s, p.fault)
	return true
}

// recheck ends the wait of a part when there is a leader to send to.
func (l *lane) recheck(s *producer, known *client.Metadata) {
	p := &s.part
	leader, ok := l.leaderOf(s, known)
	if !ok {
		return
	}
	now := time.Now()
	able := !now.Before(p.resend)
	if s.id != client.None { // for an id no leader is needed
		able = leader.Node != client.None && (able || leader != p.sent)
	}
	if able {
		p.phase = ready
		return
	}
	if now.Before(p.due) {
		return
	}
	if p.tries++; l.accuse(s, now) {
		return
	}
	p.due = now.Add(p.pause(now))
	l.sink.client.Control.Ask(s.Topic)
	if now.Sub(p.since) >= client.SilentAfter {
		l.sink.paused.refused(s.Topic, s.Partition, p.fault) // shown in status
	}
}

// wakeAt is when a waiting part is to be checked again; zero: it does not wait.
func (p *part) wakeAt() time.Time {
	if p.phase != waiting {
		return time.Time{}
	}
	if p.resend.Before(p.due) && time.Now().Before(p.resend) {
		return p.resend
	}
	return p.due
}

// leaderOf returns the leader that the metadata names for the producer's partition. It is false
// when the metadata has ended the part: the topic is at fault, or the partition no longer exists,
// and the part's events are to be split again.
func (l *lane) leaderOf(s *producer, known *client.Metadata) (client.Leader, bool) {
	p, topic := &s.part, known.Topics[s.Topic]
	switch {
	case topic == nil:
		l.sink.client.Control.Ask(s.Topic)
		return client.Leader{Node: client.None, Epoch: client.None}, true
	case topic.Code != 0:
		l.giveUp(s, topicFault(s.shown(), topic.Code))
		return client.Leader{}, false
	case int(s.Partition) >= len(topic.Partitions):
		s.drop()
		l.todo = append(l.todo, p.todo...)
		p.todo, p.phase = p.todo[:0], done
		return client.Leader{}, false
	}
	return topic.Partitions[s.Partition], true
}

// noAnswer is the fault of a partition whose leader does not answer.
func noAnswer(s *producer, why error) *sink.Fault {
	return &sink.Fault{
		Class: sink.Destination, Reason: sink.NoLeader, Destination: partitionName(s.shown(), s.Partition), Text: why.Error(),
	}
}

var errNoLeader = errors.New("the partition has no leader")
