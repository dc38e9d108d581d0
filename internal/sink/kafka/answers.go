// What a broker's answer means, and what it does to a part.

package kafka

import (
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// action is how a part reacts to an answer.
type action uint8

const (
	// confirm: the batch is in the log, replicated as far as acks=all asks for.
	confirm action = iota
	// again: the same bytes once more, to the leader that the newest metadata names.
	again
	// renew: the broker's record of the producer does not fit the batch: the same events from a new
	// producer id.
	renew
	// shrink: the batch is too large. A smaller one; the event that is too large alone is at fault.
	shrink
	// isolate: a record of the batch is refused. The record errors name it; otherwise it is found
	// by sending halves. A record that is refused alone is at fault.
	isolate
	// refuse: the topic is at fault.
	refuse
)

// verdict is the meaning of one error code.
type verdict struct {
	action action
	// doubt: the batch may be in the log in spite of the error, or get there later. Without doubt
	// the broker has answered before it appended anything.
	doubt bool
	// tries: how many times the same bytes are sent again first.
	tries  int
	class  sink.Class // of the fault that refuse, shrink and isolate find
	reason sink.Reason
}

// judge is the table of https://kafka.apache.org/protocol#protocol_error_codes. Which codes a
// broker gives before it has appended, and which after, was read in Kafka 4.x:
// ReplicaManager.appendRecords, Partition.appendRecordsToLeader,
// UnifiedLog.analyzeAndValidateRecords and DelayedProduce. Whatever a batch may meet while it waits
// for its replicas leaves doubt, also "not leader", "unknown topic" and "storage error".
func judge(code int16) verdict {
	switch kafkago.Error(code) {
	case 0:
		return verdict{action: confirm}
	case kafkago.DuplicateSequenceNumber:
		// A duplicate of a batch whose offset the broker has forgotten. It is a success only for
		// bytes that were sent before; producer.stored sees to that. Apache Kafka remembers at
		// least the last batch, so it does not answer this to us. What other brokers mean by it is
		// unknown, so nothing is stored a second time over it.
		return verdict{action: confirm}

	case kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
		kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable, kafkago.NetworkException, kafkago.KafkaStorageError,
		kafkago.LogDirNotFound, kafkago.ListenerNotFound, kafkago.FencedLeaderEpoch, kafkago.UnknownLeaderEpoch,
		kafkago.UnknownTopicID, kafkago.InconsistentTopicID, kafkago.StaleBrokerEpoch, kafkago.NotController,
		kafkago.OffsetNotAvailable, kafkago.ThrottlingQuotaExceeded:
		return verdict{action: again, doubt: true, reason: sink.NoLeader}
	case kafkago.RequestTimedOut:
		return verdict{action: again, doubt: true, reason: sink.Unconfirmed}
	case kafkago.NotEnoughReplicas:
		return verdict{action: again, reason: sink.TooFewReplicas} // nothing was appended
	case kafkago.NotEnoughReplicasAfterAppend:
		return verdict{action: again, doubt: true, reason: sink.TooFewReplicas}

	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId, kafkago.ProducerFenced,
		kafkago.InvalidProducerIDMapping, kafkago.InvalidTransactionState, kafkago.ConcurrentTransactions:
		return verdict{action: renew}

	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		return verdict{action: shrink, class: sink.Permanent, reason: sink.TooLarge}
	case kafkago.InvalidRecord, kafkago.InvalidTimestamp, kafkago.PolicyViolation:
		return verdict{action: isolate, class: sink.Permanent, reason: sink.Invalid}
	case kafkago.InvalidMessage:
		// CORRUPT_MESSAGE: a wrong checksum; sending again may help
		return verdict{action: isolate, tries: 2, class: sink.Transient, reason: sink.BrokerException}

	case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed, kafkago.TransactionalIDAuthorizationFailed:
		return verdict{action: refuse, reason: sink.NotPermitted}
	case kafkago.InvalidTopic, kafkago.UnsupportedForMessageFormat, kafkago.UnsupportedCompressionType, kafkago.UnsupportedVersion:
		// The topic accepts no records of this kind at all. That is a setting, and no reason for
		// dead letters.
		return verdict{action: refuse, reason: sink.Invalid}
	case kafkago.InvalidRequest:
		// answered before anything is appended, and never by Apache Kafka for records like ours
		return verdict{action: isolate, class: sink.Transient, reason: sink.BrokerException}

	default:
		// UNKNOWN_SERVER_ERROR, and what later versions may invent: it may pass, and it may be of
		// one event.
		return verdict{action: isolate, doubt: true, tries: 3, class: sink.Transient, reason: sink.BrokerException}
	}
}

// topicFault is the fault of a topic that metadata answers with an error code.
func topicFault(topic string, code int16) *sink.Fault {
	f := &sink.Fault{Class: sink.Destination, Reason: sink.NoLeader, Whole: true, Destination: topicTitle(topic), Text: kafkaclient.ErrorText(code, "")}
	switch kafkago.Error(code) {
	case kafkago.UnknownTopicOrPartition, kafkago.UnknownTopicID:
		f.Reason = sink.NoTopic
	case kafkago.InvalidTopic:
		f.Reason = sink.Invalid
	case kafkago.TopicAuthorizationFailed:
		f.Reason = sink.NotPermitted
	default:
	}
	return f
}

// fault returns the fault that an answer means: of the topic, of its partition, or of the event
// that was on its way there.
func (v verdict) fault(topic string, partition int32, said string) *sink.Fault {
	f := &sink.Fault{Class: v.class, Reason: v.reason, Destination: topicTitle(topic), Text: said}
	if v.class != sink.Destination {
		return f
	}
	if f.Whole = v.reason == sink.NotPermitted || v.reason == sink.Invalid; !f.Whole {
		f.Destination = partitionName(topic, partition)
	}
	return f
}

func partitionName(topic string, partition int32) string {
	return fmt.Sprintf("topic %q, partition %d", topic, partition)
}

// apply does what an answer asks for.
func (l *lane) apply(pr *producer) {
	p, a := &pr.part, &pr.Answer
	if a.Kind == kafkaclient.Answered {
		switch judge(a.Code).action {
		case confirm, shrink, isolate: // a leader looks at the events when it has enough replicas
			pr.takes.served()
		case again, renew, refuse:
		}
	}
	if pr.abandoned {
		pr.releaseBatch()
		return
	}
	p.phase = ready
	switch a.Kind {
	case kafkaclient.Unsent:
		p.cut = 0
		l.postpone(pr, noAnswer(pr, a.Why))
	case kafkaclient.Outdated:
		l.renew(pr, noAnswer(pr, kafkaclient.ErrOutdated))
	case kafkaclient.Lost:
		l.lost(pr)
	case kafkaclient.Identity:
		l.identified(pr)
	case kafkaclient.Answered:
		p.cut = 0
		if kafkago.Error(a.Code) == kafkago.RequestTimedOut {
			pr.Slow = true
		}
		l.applyVerdict(pr, judge(a.Code))
	}
}

// applyVerdict acts on the broker's answer to the batch.
func (l *lane) applyVerdict(pr *producer, v verdict) {
	p, a := &pr.part, &pr.Answer
	if v.action == confirm {
		l.confirm(pr)
		return
	}
	l.Nacks += pr.batch.Count()
	fault := v.fault(pr.shown(), pr.Partition, kafkaclient.ErrorText(a.Code, a.Message))
	if v.doubt {
		l.doubt(pr)
	}
	if p.retries++; v.tries == 0 {
		p.retries = 0
	} else if p.retries <= v.tries {
		v.action = again
	}
	switch v.action {
	case again:
		l.postpone(pr, fault)
	case renew:
		l.renew(pr, fault)
	case shrink:
		l.shrink(pr, fault)
	case isolate:
		l.isolate(pr, fault, a.Culprits)
	case refuse:
		l.rejectPart(pr, fault)
	case confirm:
	}
}

// doubt handles an answer after which the batch may be in the log.
func (l *lane) doubt(pr *producer) {
	pr.Tried = true
	pr.part.doubted = max(pr.part.doubted, pr.batch.Count())
}

// confirm settles the batch.
func (l *lane) confirm(pr *producer) {
	n, size := pr.batch.Count(), pr.batch.Size()
	if !pr.stored(pr.Answer.Duplicate()) {
		l.renew(pr, noAnswer(pr, kafkago.DuplicateSequenceNumber))
		return
	}
	if size >= 2*pr.sizeLimit { // the setting was raised, or the batch compresses better
		pr.sizeLimit = ordinaryBatch
	}
	l.Acks += n
	l.confirmed(&pr.part, n)
	l.shown.Store(nil)
	l.sink.confirms.confirmed(pr.takes)
}

// lost handles a missing answer: the batch may be stored, now or later. The same bytes are sent
// again on another connection, to the current leader: at once, unless the batch was in trouble
// before.
func (l *lane) lost(pr *producer) {
	p, a := &pr.part, &pr.Answer
	l.doubt(pr)
	l.Timeouts += pr.batch.Count()
	// A broker ends the connection without an answer when a request is larger than its
	// socket.request.max.bytes. A record is to blame when it is larger than any merged request, was
	// alone in its request, and ended two new connections in a row.
	if p.cut++; !a.Cut || pr.batch.Count() > 1 || len(pr.Bytes) <= kafkaclient.MaxRequest {
		p.cut = 0
	}
	if p.cut == 2 {
		l.rejectAlone(pr, &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: topicTitle(pr.shown()),
			Text: fmt.Sprintf("the broker ends the connection over a request of %d bytes (socket.request.max.bytes)", len(pr.Bytes)),
		})
		return
	}
	first := p.tries == 0
	l.postpone(pr, noAnswer(pr, a.Why))
	if first {
		p.resend = p.since
	}
}

// identified acts on the answer to InitProducerID.
func (l *lane) identified(pr *producer) {
	a := &pr.Answer
	if a.Code == 0 {
		pr.id, pr.epoch, pr.Session, pr.next = a.Producer, a.Epoch, a.Session, 0
		return
	}
	v := judge(a.Code)
	fault := v.fault(pr.shown(), pr.Partition, kafkaclient.ErrorText(a.Code, a.Message))
	if v.reason == sink.NotPermitted {
		l.rejectPart(pr, fault)
		return
	}
	l.postpone(pr, fault) // for example, the controller is being elected
}

// renew sends the same events under a new producer id, after a pause if that has failed before.
func (l *lane) renew(pr *producer, fault *sink.Fault) {
	pr.renew()
	if pr.part.renewals++; pr.part.renewals > 1 {
		l.postpone(pr, fault)
	}
}

// shrink handles a batch that is too large, or whose only record is too large.
func (l *lane) shrink(pr *producer, fault *sink.Fault) {
	size := pr.batch.Size()
	pr.sizeLimit = min(pr.sizeLimit, size/2)
	if pr.batch.Count() == 1 {
		fault.Text += fmt.Sprintf(" (the batch of this record alone has %d bytes)", size)
		l.rejectAlone(pr, fault)
		return
	}
	pr.drop()
	pr.part.endTrouble()
}

// isolate rejects the records that the broker has named, and sends the rest again without the later
// events of their keys. When it names none, half of the batch is sent, to find them.
func (l *lane) isolate(pr *producer, fault *sink.Fault, culprits []int32) {
	p, n := &pr.part, pr.batch.Count()
	if n == 1 {
		l.rejectAlone(pr, fault)
		return
	}
	named := false
	for _, c := range culprits {
		if c >= 0 && int(c) < n {
			named = true
			l.Reject(p.todo[c], fault)
		}
	}
	if !named {
		p.maxRecords, p.suspects = n/2, max(p.suspects, n)
	}
	pr.drop()
	p.endTrouble()
}

// rejectAlone rejects the only record of the batch.
func (l *lane) rejectAlone(pr *producer, fault *sink.Fault) {
	l.Reject(pr.part.todo[0], fault)
	pr.drop()
	pr.part.pass(1)
}

// rejectPart rejects all events of the part, because the destination is at fault. A batch in doubt
// is sent again first: a rejection would say that it is not stored.
func (l *lane) rejectPart(pr *producer, fault *sink.Fault) {
	if pr.Tried {
		l.postpone(pr, fault)
		return
	}
	l.giveUp(pr, fault)
}
