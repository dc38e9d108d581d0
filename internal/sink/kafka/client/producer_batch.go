// What is sent to a broker for one partition, and what came of it.

package client

import (
	"bytes"

	kafkago "github.com/segmentio/kafka-go"
)

// ProducerBatch is a sealed record batch on its way to the leader of its partition, or the question
// for a producer id. It is used again for the next batch of the same partition. Between broker.push
// (or control.identify) and deliver it belongs to the client, except that withdraw may take it
// back.
type ProducerBatch struct {
	Topic     string
	Partition int32

	Bytes   []byte // the batch, sealed
	Records int    // in the batch
	Tried   bool   // bytes may be in a broker's hands, or in its log
	Session int64  // of the control connection, in which the producer id came

	// Slow says that the broker has waited in vain for the partition's replicas, and since then has
	// not stored a batch. It outlives calls: a partition that is offered again after it was paused
	// is not healthy because of that. Only an answer to its own batch sets it. Without an answer
	// nobody knows which partition of a request took so long, and a new leader that was not asked
	// yet is no reason to wait for those that are slow.
	Slow bool

	Reader  bytes.Reader // of bytes, for the request
	Answer  Answer
	Deliver func() // gives the batch back to its owner, with its answer
}

// Answer is the result of a submitted batch.
type Answer struct {
	Kind     AnswerKind
	Code     int16   // answered, identity: the broker's error code
	Message  string  // answered: its text, or ""
	Culprits []int32 // answered: the records that it names, by their place in the batch
	Why      error   // unsent, lost
	Cut      bool    // lost: the broker ended the connection, and had seen nothing else on it
	Producer int64   // identity, code 0
	Epoch    int16
	Session  int64 // identity: of the control connection, in which it came
}

// AnswerKind is what came of a submitted batch: whether it may be written, and who has answered.
type AnswerKind uint8

const (
	Unsent   AnswerKind = iota // certainly not written
	Lost                       // written, perhaps, and not answered
	Answered                   // by the broker, for the batch
	Identity                   // by any broker: a producer id, or an error
	Outdated                   // not written: the producer id may now belong to another producer
)

// Duplicate reports whether the broker has called the batch a duplicate.
func (a *Answer) Duplicate() bool { return kafkago.Error(a.Code) == kafkago.DuplicateSequenceNumber }

// samePartition reports whether both batches lead to one partition: two lanes have such when a
// topic was re-created with fewer partitions.
func (b *ProducerBatch) samePartition(other *ProducerBatch) bool {
	return b.Partition == other.Partition && b.Topic == other.Topic
}
