// The producer of one partition's log, and the rules for what may be sent under its sequence
// numbers.

package kafka

import (
	"math"
	"slices"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	kafkabatch "github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// producer appends one lane's events to the log of one partition: it is an idempotent producer with
// the batch that is to be appended next. It has at most one batch, so at most one request of it is
// under way.
//
// What a broker does, measured on Kafka 4.3, is the reason for the rules here. It remembers the
// sequence numbers of the last five batches of each producer. The same batch again is acknowledged
// and stored once. OTHER records under numbers that were used are acknowledged, too, and stored
// NOWHERE. A gap is refused (45). A producer that it has forgotten (the topic was re-created, the
// state has expired) may go on with any number.
//
// So, for nothing to be lost and nothing to be stored twice:
//
//	R1  Numbers that were once in a request belong to the bytes that went with them, until a broker has said of the
//	    first attempt, before any other was made, that it appended nothing.
//	R2  Other records go under fresh numbers: those behind a batch that was confirmed, else those of a new producer.
//	R3  next moves by a confirmed batch only: as one batch is under way at a time, there never is a gap.
//
// bytes are the batch sealed for (producer, epoch, next), nil when it is not yet. tried is R1's
// memory. renew and drop are the only ways out of a batch that was not confirmed, and both take a
// new producer when tried is set. An attempt that was given up and arrives late can then at worst
// store its records a second time, it never hides others; and as it carries, of each of its keys,
// events in their order that nothing later of the key could pass before they were confirmed, the
// first arrivals of a key stay in order.
//
//	R4  Bytes that were never in a request go only to a cluster whose storage still knows that
//	    it gave the producer its id.
//
// R4 is for storage that is taken back to a snapshot, or wiped: the cluster then gives the same ids
// to others, and a batch under one of ours may look like one of another producer's last five. The
// worker keeps R4, see worker.dropOutdated. Bytes that were in a request (tried) are exempt: under
// another id they might be stored twice after any lost connection. So what is in doubt when the
// storage is taken back keeps its id, and may be acknowledged there and stored nowhere.
//
// A producer belongs to its lane's goroutine, except that between push (or identify) and deliver
// its answer is the worker's to write, and bytes is to be left alone because the worker reads it.
type producer struct {
	client.ProducerBatch
	lane *lane

	id    int64 // none: it has no id yet
	epoch int16
	next  int32 // the sequence number of the batch's first record

	batch *kafkabatch.Batch // the records; nil: there are none

	// of names the events of the batch when a call ended without knowing what became of it, or in
	// doubt. late says that a worker, or the control connection, still has the producer since such
	// a call; storedLate that the batch was confirmed after its call had ended.
	of               []eventIdentity
	late, storedLate bool

	// accused says that the partition was given up over trouble that did not end, and has stored
	// nothing since. The next batch is a probe, and it is given up soon: the events of other
	// destinations in the lane wait for it.
	accused bool

	sizeLimit kafkabatch.SizeLimit
	part      part // of the present call
}

func newProducer(l *lane, topic string, partition int32) *producer {
	s := &producer{ProducerBatch: client.ProducerBatch{Topic: topic, Partition: partition}, lane: l, id: client.None}
	s.Deliver = func() { l.inbox.deliver(s) }
	return s
}

// identified takes a producer id that nothing was sent under yet.
func (s *producer) identified(a *client.Answer) {
	s.id, s.epoch, s.Session, s.next = a.Producer, a.Epoch, a.Session, 0
}

// seal makes the batch ready to be sent: once, so that it is the same bytes however often it is
// sent. The producer has an id and a batch.
func (s *producer) seal() {
	if s.Bytes == nil {
		s.Bytes, s.Records = s.batch.Seal(s.id, s.epoch, s.next), s.batch.Count()
	}
}

// stored says that the batch is in the log. It is false when the broker has called it a duplicate
// (46) although it was never sent before: then something else has used its numbers, and it is not
// in the log.
func (s *producer) stored(duplicate bool) bool {
	if duplicate && !s.Tried {
		return false
	}
	if s.next > math.MaxInt32-1<<24 { // before the numbers would start again from 0
		s.id = client.None
	} else {
		s.next += int32(s.batch.Count())
	}
	s.Slow, s.accused = false, false
	s.releaseBatch()
	return true
}

// verdict is what the broker's answer to the batch means.
func (s *producer) verdict() verdict {
	if kafkago.Error(s.Answer.Code) == kafkago.RequestTimedOut {
		s.Slow = true
	}
	return judge(s.Answer.Code)
}

// renew has the same records sent under a new producer id.
func (s *producer) renew() {
	s.id, s.Bytes, s.Tried = client.None, nil, false
}

// drop gives the batch up: these bytes will not be sent again.
func (s *producer) drop() {
	if s.Tried {
		s.id = client.None
	}
	s.releaseBatch()
}

// releaseBatch returns the producer's batch to the pool.
func (s *producer) releaseBatch() {
	if s.batch != nil {
		s.lane.sink.pool.Put(s.batch)
	}
	s.batch, s.Bytes, s.Tried = nil, nil, false
	s.Reader.Reset(nil)
}

// remember records the events of the batch, for a later call that carries them again.
func (s *producer) remember(events []*event.Event, batch []int32) {
	s.of = s.of[:0]
	for _, i := range batch {
		s.of = append(s.of, identityOf(events[i]))
	}
}

// forget drops what remember has recorded.
func (s *producer) forget() { s.of, s.storedLate = s.of[:0], false }

// resumes reports whether todo has the events that remember has recorded, and can begin with them.
// Then it is reordered to do so, and the batch that is left can be sent again unchanged, or was
// already stored. Others may have come before them, as an event does that was rejected alone while
// the batch behind it went out: those go behind now. This keeps the order of each key while none of
// the events that pass them has one of their keys.
func (s *producer) resumes(events []*event.Event, todo []int32) bool {
	first, rest := make([]int32, 0, len(todo)), make([]int32, 0, len(todo))
	for _, i := range todo {
		if len(first) == len(s.of) || !s.of[len(first)].is(events[i]) {
			rest = append(rest, i)
			continue
		}
		if slices.ContainsFunc(rest, func(earlier int32) bool { return sameKey(events[earlier], events[i]) }) {
			return false
		}
		first = append(first, i)
	}
	if len(first) < len(s.of) {
		return false
	}
	copy(todo, append(first, rest...))
	return true
}

// sameKey reports whether two events must be stored in their order.
func sameKey(a, b *event.Event) bool { return a.Ordered && b.Ordered && a.Hash == b.Hash }

// settleLate handles the answer to a batch whose call has ended.
func (s *producer) settleLate() {
	s.late = false
	switch a := &s.Answer; a.Kind {
	case client.Identity:
		if a.Code == 0 {
			s.identified(a)
		}
	case client.Unsent, client.Outdated:
	case client.Lost:
		s.Tried = true
	case client.Answered:
		v := s.verdict()
		if v.action == confirm && s.stored(a.Duplicate()) {
			s.storedLate = true
			return
		}
		s.Tried = s.Tried || v.doubt
		fits := v.action != renew && v.action != confirm // else the numbers are of no use
		if !fits {
			s.id = client.None
		}
		if !fits || !s.Tried {
			s.drop()
			s.forget()
		}
	}
}

// shown is the producer's topic as people may see it.
func (s *producer) shown() string { return s.lane.sink.layout.Shown(s.Topic) }
