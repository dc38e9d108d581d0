// A batch that is sent to a broker for one partition, and its answer.

package client

import (
	"bytes"

	kafkago "github.com/segmentio/kafka-go"
)

// ProducerBatch is a sealed record batch on its way to the leader of its partition, or a request
// for a producer id. It is reused for the next batch of the partition. Between Push (or Identify)
// and Deliver it belongs to the client, unless Withdraw takes it back.
type ProducerBatch struct {
	Topic     string
	Partition int32

	Bytes   []byte // the batch, sealed
	Records int    // in the batch
	Tried   bool   // the bytes were in a request: they may be in the log
	Session int64  // of the control connection in which the producer id came

	// Slow is set when the broker has waited in vain for the partition's replicas, and has stored
	// no batch since. It outlives a call, because a pause repairs no replica. Only the answer to
	// this batch sets it: without an answer it is not known which partition of the request was
	// slow.
	Slow bool

	Reader  bytes.Reader // of Bytes, for the request
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
	Cut      bool    // lost: the broker ended a new connection over this batch alone
	Producer int64   // identity, code 0
	Epoch    int16
	Session  int64 // identity: of the control connection in which it came
}

// AnswerKind is the kind of an answer: whether the batch may be written, and who has answered.
type AnswerKind uint8

const (
	Unsent   AnswerKind = iota // certainly not written
	Lost                       // perhaps written, and not answered
	Answered                   // by the broker, for the batch
	Identity                   // by any broker: a producer id, or an error
	Outdated                   // not written: the producer id may now belong to another producer
)

// Duplicate reports whether the broker has called the batch a duplicate.
func (a *Answer) Duplicate() bool { return kafkago.Error(a.Code) == kafkago.DuplicateSequenceNumber }

// samePartition reports whether both batches are for one partition. Two lanes have such batches
// when a topic was re-created with fewer partitions.
func (b *ProducerBatch) samePartition(other *ProducerBatch) bool {
	return b.Partition == other.Partition && b.Topic == other.Topic
}
