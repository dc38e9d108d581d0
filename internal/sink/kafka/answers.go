// What a broker's answer to a batch means, and what a part does then: confirm, send again, make the
// batch smaller, or blame an event or the topic.

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
	// actionConfirm means that the batch is in the log, replicated as far as acks=all asks for.
	actionConfirm action = iota
	// actionResend sends the same bytes again, to the leader that the newest metadata names.
	actionResend
	// actionRenew sends the same events under a new producer id, because the broker's record of the
	// producer does not fit the batch.
	actionRenew
	// actionShrink makes a smaller batch, because this one is too large. An event that is too large
	// alone is at fault.
	actionShrink
	// actionIsolate finds the record that is refused: the record errors name it, or halves of the
	// batch are sent. A record that is refused alone is at fault.
	actionIsolate
	// actionRefuse blames the topic.
	actionRefuse
)

// verdict is the meaning of one error code.
type verdict struct {
	action action
	// doubt says that the batch may be in the log in spite of the error, or get there later.
	// Without doubt the broker has answered before it appended anything.
	doubt bool
	// tries is how often the same bytes are sent again before the action.
	tries  int
	class  sink.Class // of the fault that actionRefuse, actionShrink and actionIsolate find
	reason sink.Reason
}

// verdictOf is the table of https://kafka.apache.org/protocol#protocol_error_codes. Which codes a
// broker gives before it has appended, and which after, was read in Kafka 4.x:
// ReplicaManager.appendRecords, Partition.appendRecordsToLeader,
// UnifiedLog.analyzeAndValidateRecords and DelayedProduce. Whatever a batch may meet while it waits
// for its replicas leaves doubt, also "not leader", "unknown topic" and "storage error".
func verdictOf(code int16) verdict {
	switch kafkago.Error(code) {
	case 0:
		return verdict{action: actionConfirm}
	case kafkago.DuplicateSequenceNumber:
		// The batch is a duplicate of one whose offset the broker has forgotten. That is a success
		// only for bytes that were sent before; producer.noteStored sees to that. Apache Kafka
		// remembers at least the last batch, so it does not give this answer to the relay. What
		// other brokers mean by it is unknown, so nothing is stored a second time because of it.
		return verdict{action: actionConfirm}

	case kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
		kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable, kafkago.NetworkException, kafkago.KafkaStorageError,
		kafkago.LogDirNotFound, kafkago.ListenerNotFound, kafkago.FencedLeaderEpoch, kafkago.UnknownLeaderEpoch,
		kafkago.UnknownTopicID, kafkago.InconsistentTopicID, kafkago.StaleBrokerEpoch, kafkago.NotController,
		kafkago.OffsetNotAvailable, kafkago.ThrottlingQuotaExceeded:
		return verdict{action: actionResend, doubt: true, reason: sink.NoLeader}
	case kafkago.RequestTimedOut:
		return verdict{action: actionResend, doubt: true, reason: sink.Unconfirmed}
	case kafkago.NotEnoughReplicas:
		return verdict{action: actionResend, reason: sink.TooFewReplicas} // nothing was appended
	case kafkago.NotEnoughReplicasAfterAppend:
		return verdict{action: actionResend, doubt: true, reason: sink.TooFewReplicas}

	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId, kafkago.ProducerFenced,
		kafkago.InvalidProducerIDMapping, kafkago.InvalidTransactionState, kafkago.ConcurrentTransactions:
		return verdict{action: actionRenew}

	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		return verdict{action: actionShrink, class: sink.Permanent, reason: sink.TooLarge}
	case kafkago.InvalidRecord, kafkago.InvalidTimestamp, kafkago.PolicyViolation:
		return verdict{action: actionIsolate, class: sink.Permanent, reason: sink.Invalid}
	case kafkago.InvalidMessage:
		// CORRUPT_MESSAGE: a wrong checksum; sending again may help
		return verdict{action: actionIsolate, tries: 2, class: sink.Transient, reason: sink.BrokerException}

	case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed, kafkago.TransactionalIDAuthorizationFailed:
		return verdict{action: actionRefuse, reason: sink.NotPermitted}
	case kafkago.InvalidTopic, kafkago.UnsupportedForMessageFormat, kafkago.UnsupportedCompressionType, kafkago.UnsupportedVersion:
		// The topic accepts no records of this kind at all. That is a setting, and no reason for
		// dead letters.
		return verdict{action: actionRefuse, reason: sink.Invalid}
	case kafkago.InvalidRequest:
		// answered before anything is appended, and never by Apache Kafka for records like ours
		return verdict{action: actionIsolate, class: sink.Transient, reason: sink.BrokerException}

	default:
		// UNKNOWN_SERVER_ERROR, and what later versions may invent: it may pass, and it may be of
		// one event.
		return verdict{action: actionIsolate, doubt: true, tries: 3, class: sink.Transient, reason: sink.BrokerException}
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

// fault makes the fault that a verdict means: of the topic, of its partition, or of the event.
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

// applyAnswer carries out what an answer means for its part. The lane calls it for each producer
// that the client has given back.
func (l *lane) applyAnswer(pr *producer) {
	p, a := &pr.part, &pr.Answer
	if a.Kind == kafkaclient.Answered {
		switch verdictOf(a.Code).action {
		case actionConfirm, actionShrink, actionIsolate: // it had enough replicas
			pr.state.noteServed()
		case actionResend, actionRenew, actionRefuse:
		}
	}
	if pr.abandoned {
		pr.releaseBatch()
		return
	}
	p.phase = phaseReady
	switch a.Kind {
	case kafkaclient.Unsent:
		p.trouble.cutConnections = 0
		l.postponePart(pr, noAnswer(pr, a.Why))
	case kafkaclient.Outdated:
		l.renewProducer(pr, noAnswer(pr, kafkaclient.ErrOutdated))
	case kafkaclient.Lost:
		l.handleLostAnswer(pr)
	case kafkaclient.Identity:
		l.takeProducerID(pr)
	case kafkaclient.Answered:
		p.trouble.cutConnections = 0
		if kafkago.Error(a.Code) == kafkago.RequestTimedOut {
			pr.Slow = true
		}
		l.applyVerdict(pr, verdictOf(a.Code))
	}
}

// applyVerdict carries out the verdict on a broker's answer to a batch.
func (l *lane) applyVerdict(pr *producer, v verdict) {
	t, a := &pr.part.trouble, &pr.Answer
	if v.action == actionConfirm {
		l.confirmBatch(pr)
		return
	}
	l.Nacks += pr.batch.Count()
	fault := v.fault(pr.shownTopic(), pr.Partition, kafkaclient.ErrorText(a.Code, a.Message))
	if v.doubt {
		l.noteDoubt(pr)
	}
	if t.retries++; v.tries == 0 {
		t.retries = 0
	} else if t.retries <= v.tries {
		v.action = actionResend
	}
	switch v.action {
	case actionResend:
		l.postponePart(pr, fault)
	case actionRenew:
		l.renewProducer(pr, fault)
	case actionShrink:
		l.shrinkBatch(pr, fault)
	case actionIsolate:
		l.isolateRecord(pr, fault, a.Culprits)
	case actionRefuse:
		l.rejectPart(pr, fault)
	case actionConfirm:
	}
}

// noteDoubt notes that the batch may be in the log.
func (l *lane) noteDoubt(pr *producer) {
	pr.Tried = true
	pr.part.doubted = max(pr.part.doubted, pr.batch.Count())
}

// confirmBatch settles the events of a batch that is in the log.
func (l *lane) confirmBatch(pr *producer) {
	n, size := pr.batch.Count(), pr.batch.Size()
	if !pr.noteStored(pr.Answer.Duplicate()) {
		l.renewProducer(pr, noAnswer(pr, kafkago.DuplicateSequenceNumber))
		return
	}
	if size >= 2*pr.sizeLimit { // the topic's limit was raised, or the batch compresses better
		pr.sizeLimit = ordinaryBatch
	}
	l.Acks += n
	l.confirmFirst(&pr.part, n)
	l.shownWait.Store(nil)
	l.sink.states.noteConfirmed(pr.state)
}

// handleLostAnswer handles a missing answer: the batch may be stored, now or later. The same bytes
// are sent again on another connection, to the current leader: at once, unless the batch was in
// trouble before.
func (l *lane) handleLostAnswer(pr *producer) {
	p, t, a := &pr.part, &pr.part.trouble, &pr.Answer
	l.noteDoubt(pr)
	l.Timeouts += pr.batch.Count()
	// A broker ends the connection without an answer when a request is larger than its
	// socket.request.max.bytes. A record is to blame when it is larger than any merged request, was
	// alone in its request, and ended two new connections in a row.
	if t.cutConnections++; !a.Cut || pr.batch.Count() > 1 || len(pr.Bytes) <= kafkaclient.MaxRequest {
		t.cutConnections = 0
	}
	if t.cutConnections == 2 {
		l.rejectAlone(pr, &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: topicTitle(pr.shownTopic()),
			Text: fmt.Sprintf("the broker ends the connection over a request of %d bytes (socket.request.max.bytes: raise it, then replay; the broker is asked each time)", len(pr.Bytes)),
		})
		return
	}
	first := t.since.IsZero()
	l.postponePart(pr, noAnswer(pr, a.Why))
	if first {
		p.resendAt = t.since
	}
}

// takeProducerID takes the answer to InitProducerID.
func (l *lane) takeProducerID(pr *producer) {
	a := &pr.Answer
	if a.Code == 0 {
		pr.id, pr.epoch, pr.Session, pr.nextSequence = a.Producer, a.Epoch, a.Session, 0
		return
	}
	v := verdictOf(a.Code)
	fault := v.fault(pr.shownTopic(), pr.Partition, kafkaclient.ErrorText(a.Code, a.Message))
	if v.reason == sink.NotPermitted {
		l.rejectPart(pr, fault)
		return
	}
	l.postponePart(pr, fault) // for example, a controller is being elected
}

// renewProducer lets the same events be sent under a new producer id. After a second renewal in a
// row there is a pause.
func (l *lane) renewProducer(pr *producer, fault *sink.Fault) {
	pr.forgetID()
	if pr.part.trouble.renewals++; pr.part.trouble.renewals > 1 {
		l.postponePart(pr, fault)
	}
}

// shrinkBatch halves the size of batches after one that was too large. If the batch has only one
// record, it rejects that.
func (l *lane) shrinkBatch(pr *producer, fault *sink.Fault) {
	size := pr.batch.Size()
	pr.sizeLimit = min(pr.sizeLimit, size/2)
	if pr.batch.Count() == 1 {
		fault.Text += fmt.Sprintf(" (the batch of this record alone has %d bytes: raise max.message.bytes of the topic, then replay; the broker is asked each time)", size)
		l.rejectAlone(pr, fault)
		return
	}
	pr.dropBatch()
	pr.part.endTrouble()
}

// isolateRecord rejects the records that the broker has named, and sends the rest again without the
// later events of their keys. When it names none, half of the batch is sent, to find them.
func (l *lane) isolateRecord(pr *producer, fault *sink.Fault, culprits []int32) {
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
	pr.dropBatch()
	p.endTrouble()
}

// rejectAlone rejects the only event of a batch.
func (l *lane) rejectAlone(pr *producer, fault *sink.Fault) {
	l.Reject(pr.part.todo[0], fault)
	pr.dropBatch()
	pr.part.dropFirst(1)
}

// rejectPart rejects all events of a part, because the destination is at fault. While the batch is
// in doubt it is sent again instead, because a rejection would say that it is not stored.
func (l *lane) rejectPart(pr *producer, fault *sink.Fault) {
	if pr.Tried {
		l.postponePart(pr, fault)
		return
	}
	l.rejectRest(pr, fault)
}
