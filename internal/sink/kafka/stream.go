// The producer of one partition's log, and the rules for what may be sent under its sequence numbers.

package kafka

import (
	"bytes"
	"hash/maphash"
	"math"
	"slices"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// stream is one lane's way into the log of one partition: an idempotent producer of its own, and the batch that is to be
// appended next. It has at most one batch, so at most one request of it is under way.
//
// What a broker does, measured on Kafka 4.3, is the reason for the rules here. It remembers the sequence numbers of the last
// five batches of each producer. The same batch again is acknowledged and stored once. OTHER records under numbers that
// were used are acknowledged, too, and stored NOWHERE. A gap is refused (45). A producer that it has forgotten (the topic
// was made anew, the state has expired) may go on with any number.
//
// So, for nothing to be lost and nothing to be stored twice:
//
//	R1  Numbers that were once in a request belong to the bytes that went with them, until a broker has said of the
//	    first attempt, before any other was made, that it appended nothing.
//	R2  Other records go under fresh numbers: those behind a batch that was confirmed, else those of a new producer.
//	R3  next moves by a confirmed batch only: as one batch is under way at a time, there never is a gap.
//
// tried is R1's memory. renew and drop are the only ways out of a batch that was not confirmed, and both take a new producer
// when tried is set. An attempt that was given up and arrives late can then at worst store its records a second time, it
// never hides others; and as it carries, of each of its keys, events in their order that nothing later of the key could
// pass before they were confirmed, the first arrivals of a key stay in order.
//
//	R4  Bytes that were never in a request go only to a cluster whose storage still knows that
//	    it gave the producer its id.
//
// R4 is for storage that is taken back to a snapshot, or wiped: the cluster then gives the same ids
// to others, and a batch under one of ours may look like one of another producer's last five. The
// worker keeps R4, see worker.current. Bytes that were in a request (tried) are exempt: under
// another id they might be stored twice after any lost connection. So what is in doubt when the
// storage is taken back keeps its id, and may be acknowledged there and stored nowhere.
//
// A stream belongs to its lane's goroutine, except that between push (or identify) and deliver its answer is the worker's
// to write, and bytes is to be left alone because the worker reads it.
type stream struct {
	lane      *lane
	topic     string
	partition int32

	producer int64 // none: it has no id yet
	epoch    int16
	session  int64 // of the control connection, in which the id came
	next     int32 // the sequence number of the batch's first record

	batch *batch // the records; nil: there are none
	bytes []byte // the batch sealed for (producer, epoch, next); nil: not yet
	tried bool   // bytes may be in a broker's hands, or in its log: R1

	// of names the events of the batch when a call ended without knowing what became of it, or in doubt. late says that
	// a worker, or the control connection, still has the stream since such a call; landed that the batch was confirmed
	// after its call had ended.
	of           []which
	late, landed bool

	// slow says that the broker has waited in vain for the partition's replicas, and since then has not stored a batch. It
	// outlives calls: a partition that is offered again after it was paused is not healthy for that. Only an answer to its
	// own batch sets it. Without an answer nobody knows which partition of a request took so long, and a new leader
	// that was not asked yet is no reason to wait for those that are slow.
	slow bool

	// accused says that the partition was given up over trouble that did not end, and has stored nothing since. What comes
	// then is a probe, and it is answered soon: the lane waits for it with the events of other destinations.
	accused bool

	limit  limit
	reader bytes.Reader // of bytes, for the request
	answer answer
	part   part // of the present call
}

const none = -1

func newStream(l *lane, topic string, partition int32) *stream {
	return &stream{lane: l, topic: topic, partition: partition, producer: none}
}

// identified takes a producer id that nothing was sent under yet.
func (s *stream) identified(a *answer) {
	s.producer, s.epoch, s.session, s.next = a.producer, a.epoch, a.session, 0
}

// seal makes the batch ready to be sent: once, so that it is the same bytes however often it is sent. The stream has a
// producer and a batch.
func (s *stream) seal() {
	if s.bytes == nil {
		s.bytes = s.batch.seal(s.producer, s.epoch, s.next)
	}
}

// stored says that the batch is in the log. It is false when the broker has called it a duplicate (46) although it was
// never sent before: then something else has used its numbers, and it is not in the log.
func (s *stream) stored(duplicate bool) bool {
	if duplicate && !s.tried {
		return false
	}
	if s.next > math.MaxInt32-1<<24 { // before the numbers would start again from 0
		s.producer = none
	} else {
		s.next += int32(s.batch.count())
	}
	s.slow, s.accused = false, false
	s.unload()
	return true
}

// verdict is what the broker's answer to the batch means.
func (s *stream) verdict() verdict {
	if kafkago.Error(s.answer.code) == kafkago.RequestTimedOut {
		s.slow = true
	}
	return judge(s.answer.code)
}

// renew has the same records sent by a new producer.
func (s *stream) renew() {
	s.producer, s.bytes, s.tried = none, nil, false
}

// drop gives the batch up: these bytes will not be sent again.
func (s *stream) drop() {
	if s.tried {
		s.producer = none
	}
	s.unload()
}

// unload leaves the stream without a batch.
func (s *stream) unload() {
	if s.batch != nil {
		s.lane.sink.batches.put(s.batch)
	}
	s.batch, s.bytes, s.tried = nil, nil, false
	s.reader.Reset(nil)
}

// which tells the events of batches apart. A dead letter that is replayed has a header that its
// first record has not, and so has the mirror's copy of one.
//
// A position alone does not name an event here. The sink outlives the line, and what the line
// reads: a server whose storage was rolled back gives positions a second time
// (replication/rolledback.go). An event that was taken for another one of its position would be
// confirmed over that one's record, and stored nowhere. So the content has to be the same, too.
// Then the record that is stored, or the bytes that are sent again, are this event's, whichever
// history of the database it is from. Other content is another batch's, as R2 has it. A lost
// session, or a new leader's term, does not change what a row says, so its batch is still known.
// Memory that ended with a term would rest on every way to a second history being a new term.
type which struct {
	position       outbox.Position
	replay, copied bool
	content        uint64
}

func whichIs(ev *outbox.Event) which { return which{ev.Position, ev.Replay, ev.Copy, contentOf(ev)} }

// is reports whether w is the event. Hardly any position is w's, so hardly any content is read.
func (w which) is(ev *outbox.Event) bool { return ev.Position == w.position && w == whichIs(ev) }

var contentSeed = maphash.MakeSeed()

// contentOf is a digest of all that a record is made of. Two different events have the same one
// once in 2^64. Times are compared to the microsecond, which is what a parked row keeps of them.
func contentOf(ev *outbox.Event) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	for _, n := range [...]int64{ev.CommitTime.UnixMicro(), ev.Time.UnixMicro(), int64(ev.PayloadKind)} {
		maphash.WriteComparable(&h, n)
	}
	add := func(value []byte) {
		length := len(value)
		if value == nil {
			length = none
		}
		maphash.WriteComparable(&h, length)
		h.Write(value)
	}
	for _, value := range [...][]byte{ev.ID, ev.Aggregate, ev.Key, ev.Type, ev.Payload, ev.Traceparent, ev.Headers} {
		add(value)
	}
	for _, value := range ev.Columns {
		add(value)
	}
	return h.Sum64()
}

// remember names the events of the batch, for a later call that carries them again.
func (s *stream) remember(events []*outbox.Event, batch []int32) {
	s.of = s.of[:0]
	for _, i := range batch {
		s.of = append(s.of, whichIs(events[i]))
	}
}

// forget is remember's end.
func (s *stream) forget() { s.of, s.landed = s.of[:0], false }

// resumes reports whether todo has the events that remember has named, and can begin with them: then it does, and the batch
// that is left can go again as it is, or is known to be stored. Others may have come before them, as an event does that was
// rejected alone while the batch behind it went out: those go behind now, which no key notices as long as none of theirs is
// among the events that pass them.
func (s *stream) resumes(events []*outbox.Event, todo []int32) bool {
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
func sameKey(a, b *outbox.Event) bool { return a.Ordered && b.Ordered && a.Hash == b.Hash }

// settleLate takes the answer to what was out when its call ended.
func (s *stream) settleLate() {
	s.late = false
	switch a := &s.answer; a.kind {
	case identity:
		if a.code == 0 {
			s.identified(a)
		}
	case unsent, outdated:
	case lost:
		s.tried = true
	case answered:
		v := s.verdict()
		if v.action == confirm && s.stored(a.duplicate()) {
			s.landed = true
			return
		}
		s.tried = s.tried || v.doubt
		fits := v.action != renew && v.action != confirm // else the numbers are of no use
		if !fits {
			s.producer = none
		}
		if !fits || !s.tried {
			s.drop()
			s.forget()
		}
	}
}

// shown is the stream's topic as people may see it.
func (s *stream) shown() string { return s.lane.sink.layout.shown(s.topic) }
