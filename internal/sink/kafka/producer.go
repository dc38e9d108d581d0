// The producer of one lane and partition, and the rules for what it may send under its sequence
// numbers, so that nothing is lost and nothing is stored twice.

package kafka

import (
	"math"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// producer appends one lane's events to the log of one partition: it is an idempotent producer with
// the batch that is to be appended next. It has at most one batch, so at most one request of it is
// under way.
//
// The rules come from what a broker does (measured on Kafka 4.3). It remembers the sequence numbers
// of the last five batches of each producer. It acknowledges the same batch again, and stores it
// once. It also acknowledges OTHER records under used numbers, and stores them NOWHERE. It refuses
// a gap (45). A producer that it has forgotten (the topic was re-created, the state has expired)
// may continue with any number.
//
// So nothing is lost, and nothing is stored twice, under these rules:
//
//	R1  Numbers that were once in a request belong to the bytes that went with them, until a
//	    broker has said of the first attempt, before any other was made, that it appended nothing.
//	R2  Other records go under fresh numbers: those behind a batch that was confirmed, else those
//	    of a new producer.
//	R3  nextSequence moves by a confirmed batch only: as one batch is under way at a time, there
//	    never is a gap.
//
// Bytes is the batch sealed for (id, epoch, nextSequence), nil before that. Tried is the memory of
// R1: the bytes were in a request. A batch that was not confirmed ends in one of three ways.
// forgetID and dropBatch take a new producer id when Tried is set. A batch that a worker still has
// when its call ends is abandoned with its producer. An attempt that was given up may arrive late.
// Then it stores its records a second time and hides no others. First arrivals of a key stay in
// order: the attempt carries the key's events in order, and nothing later of the key was sent
// before they were confirmed.
//
//	R4  Bytes that were never in a request go only to a cluster whose storage still knows that
//	    it gave the producer its id.
//
// R4 is about storage that is rolled back to a snapshot, or wiped. The cluster then gives the same
// ids to others, and a batch under one of ours may look like one of another producer's last five.
// The worker keeps R4, see worker.dropOutdated. Bytes that were in a request are exempt: under
// another id they might be stored twice after any lost connection. So a batch that is in doubt when
// the storage is rolled back keeps its id. The cluster may acknowledge it and store it nowhere.
//
// A producer belongs to its lane's goroutine. Between Push (or Identify) and Deliver the client
// writes Answer and reads Bytes.
type producer struct {
	kafkaclient.ProducerBatch
	lane  *lane
	state *partitionState // of its partition

	id           int64 // None until it has an id
	epoch        int16
	nextSequence int32 // the sequence number of the batch's first record

	batch    *kafkaclient.Batch // the records; nil when there is no batch
	heldRoom int                // the batch's part of Sink.heldBytes

	// abandoned says that the call of the batch ended while the client had the batch. Another
	// producer has taken the place of this one, which only waits until the client returns the
	// batch.
	abandoned bool

	// troubledSince is when the call began in which the partition came into trouble; zero when its
	// last batch was stored. See partitionStates.
	troubledSince time.Time

	// sizeLimit is the size that a batch should not exceed, in bytes before compression. A batch
	// may always have one record. Brokers do not tell their limit, so a batch that is refused
	// halves sizeLimit. It never falls below half of the size that the topic accepts.
	sizeLimit int
	part      part // in the present call

	foundAt int64 // the offset of the event that was read back last
	foundIn int64 // in this term
}

// ordinaryBatch is the first sizeLimit, in bytes before compression. It is below the 1,048,588
// bytes (max.message.bytes) that a topic takes by default, and above what nearly every call has.
const ordinaryBatch = 950_000

func newProducer(l *lane, topic string, partition int32) *producer {
	pr := &producer{ProducerBatch: kafkaclient.ProducerBatch{Topic: topic, Partition: partition}, lane: l, state: l.sink.states.stateOf(topic, partition), id: kafkaclient.None, sizeLimit: ordinaryBatch}
	pr.Deliver = func() { l.inbox.addProducer(pr) }
	return pr
}

// sealBatch makes the batch ready to be sent, unless that was done already, so that its bytes are
// the same however often it is sent. The producer must have an id and a batch.
func (pr *producer) sealBatch() {
	if pr.Bytes == nil {
		pr.Bytes, pr.Records = pr.batch.Seal(pr.id, pr.epoch, pr.nextSequence), pr.batch.Count()
	}
}

// noteStored notes that the batch is in the log. It returns false when the broker has called the
// batch a duplicate (46) although it was never sent before: then something else has used its
// numbers, and the batch is not in the log.
func (pr *producer) noteStored(duplicate bool) bool {
	if duplicate && !pr.Tried {
		return false
	}
	if pr.nextSequence > math.MaxInt32-1<<24 { // before the numbers start again from 0
		pr.id = kafkaclient.None
	} else {
		pr.nextSequence += int32(pr.batch.Count())
	}
	pr.Slow, pr.troubledSince = false, time.Time{}
	pr.releaseBatch()
	return true
}

// forgetID lets the same records be sealed again under a new producer id.
func (pr *producer) forgetID() {
	pr.id, pr.Bytes, pr.Tried = kafkaclient.None, nil, false
}

// dropBatch gives the batch up: these bytes will not be sent again.
func (pr *producer) dropBatch() {
	if pr.Tried {
		pr.id = kafkaclient.None
	}
	pr.releaseBatch()
}

// releaseBatch returns the producer's batch to the pool. Its bytes must not be used after that.
func (pr *producer) releaseBatch() {
	if pr.batch != nil {
		pr.batch.Reset()
		pr.lane.sink.batches.Put(pr.batch)
	}
	pr.releaseRoom()
	pr.batch, pr.Bytes, pr.Tried = nil, nil, false
	pr.Reader.Reset(nil)
}

// maxHeld bounds, in bytes, the batches that are in memory until they are answered, whatever the
// number of partitions: a record may be nine times as large as its row. The first smallBatch bytes
// of each batch do not count, so that a partition with few events never waits for others. A single
// record that is larger than maxHeld goes alone. Room is taken in steps of at least heldStep.
const (
	maxHeld    = 32 << 20
	smallBatch = 64 << 10
	heldStep   = 64 << 10
)

// takeRoom takes the room that the batch needs to grow to a size. It returns false when there is
// not enough.
func (pr *producer) takeRoom(to int) bool {
	if to <= smallBatch+pr.heldRoom {
		return true
	}
	held, more := &pr.lane.sink.heldBytes, int64(max(to-smallBatch-pr.heldRoom, heldStep))
	if now := held.Add(more); now > maxHeld && now > more {
		held.Add(-more)
		return false
	}
	pr.heldRoom += int(more)
	return true
}

// releaseRoom gives back the room that the batch has taken.
func (pr *producer) releaseRoom() {
	pr.lane.sink.heldBytes.Add(-int64(pr.heldRoom))
	pr.heldRoom = 0
}

// shownTopic returns the producer's topic as people may see it.
func (pr *producer) shownTopic() string { return pr.lane.sink.layout.Shown(pr.Topic) }
