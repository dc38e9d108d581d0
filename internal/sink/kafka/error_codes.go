// What a broker's error code for a batch means: one closed table.

package kafka

import (
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
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
	f := &sink.Fault{Class: sink.Destination, Reason: sink.NoLeader, Whole: true, Destination: record.TopicName(topic), Text: conn.ErrorText(code, "")}
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
	f := &sink.Fault{Class: v.class, Reason: v.reason, Destination: record.TopicName(topic), Text: said}
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
