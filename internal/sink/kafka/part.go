// What becomes of the events of one call that go to one partition: a state machine, driven by the broker's answers.

package kafka

import (
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// part is the events of the present call that go to one partition, and how far they are. The first of them are in the
// stream's batch. Nothing here blocks.
//
//	ready ─ fill, seal, push ─▶ out ─ answer ─▶ ready: the next batch, a smaller one, or the same under a new producer
//	  ▲                                    ├─▶ waiting: for a leader, or until the same bytes may go again
//	  └────────── a leader, or time ───────┘   └─▶ done: nothing is left, the destination is at fault, or split anew
type part struct {
	todo  []int32 // places in the call of the events that are not answered, each key's in order; the batch has the first of them
	room  []int32 // the memory of todo
	phase phase

	most     int // records in a batch at most while a culprit is searched for; 0: no bound
	suspects int // the culprit is among so many first ones of todo
	doubted  int // so many first ones of todo were sent, and may be stored

	sent   leader      // whom the batch was sent to last
	same   int         // how often since then it did not help
	at     *broker     // out: whose queue it went to; nil: the control connection has it, for an id
	since  time.Time   // when the batch first met trouble; zero: it has not
	tries  int         // what was tried since, and did not help: answers, and looks at the metadata
	odd    int         // answers in a row that are worth a few repetitions
	anew   int         // producers for one batch in a row
	cut    int         // connections in a row that ended over this batch alone
	due    time.Time   // waiting: metadata is asked for again
	resend time.Time   // waiting: from now on the batch may go to the leader that it was sent to already
	fault  *sink.Fault // what is to blame if the trouble does not end
}

type phase uint8

const (
	done phase = iota
	ready
	out // with a worker, or with the control connection
	waiting
)

// answer is what became of what was submitted.
type answer struct {
	kind     answerKind
	code     int16   // answered, identity: the broker's error code
	message  string  // answered: its words, or ""
	culprits []int32 // answered: the records that it names, by their place in the batch
	why      error   // unsent, lost
	cut      bool    // lost: the broker ended the connection, and had seen nothing else on it
	producer int64   // identity, code 0
	epoch    int16
	session  int64 // identity: of the control connection, in which it came
}

type answerKind uint8

const (
	unsent   answerKind = iota // certainly not written
	lost                       // written, perhaps, and not answered
	answered                   // by the broker, for the batch
	identity                   // by any broker: a producer id, or why there is none
	outdated                   // not written: the producer id may be somebody else's by now
)

// duplicate reports whether the broker has called the batch a duplicate.
func (a *answer) duplicate() bool { return kafkago.Error(a.code) == kafkago.DuplicateSequenceNumber }

// resume looks at what an earlier call has left in the stream: the batch of the same events goes again as it is, or is known
// to be stored; that of other events is given up.
func (l *lane) resume(s *stream) {
	p := &s.part
	p.phase = ready
	if len(s.of) == 0 {
		return
	}
	switch n := len(s.of); {
	case !s.resumes(l.events, p.todo):
		s.drop()
	case s.landed:
		l.confirmed(p, n)
	case s.tried:
		p.doubted = n
	}
	s.forget()
}

// apply does what an answer asks for.
func (l *lane) apply(s *stream) {
	p, a := &s.part, &s.answer
	if s.late {
		s.settleLate()
		if p.phase == out { // the present call has events for it, too
			l.resume(s)
		}
		return
	}
	p.phase = ready
	switch a.kind {
	case unsent:
		p.cut = 0
		l.trouble(s, noAnswer(s, a.why))
	case outdated:
		l.renew(s, noAnswer(s, errOutdated))
	case lost:
		l.lost(s)
	case identity:
		l.identified(s)
	case answered:
		p.cut = 0
		l.judged(s, s.verdict())
	}
}

// judged acts on the broker's answer to the batch.
func (l *lane) judged(s *stream, v verdict) {
	p, a := &s.part, &s.answer
	if v.action == confirm {
		l.confirm(s)
		return
	}
	l.tally.nacks += s.batch.count()
	fault := v.fault(s.shown(), s.partition, words(a.code, a.message))
	if v.doubt {
		l.doubt(s)
	}
	if p.odd++; v.tries == 0 {
		p.odd = 0
	} else if p.odd <= v.tries {
		v.action = again
	}
	switch v.action {
	case again:
		l.trouble(s, fault)
	case renew:
		l.renew(s, fault)
	case shrink:
		l.shrink(s, fault)
	case isolate:
		l.isolate(s, fault, a.culprits)
	case refuse:
		l.refuse(s, fault)
	case confirm:
	}
}

// doubt: the batch may be in the log.
func (l *lane) doubt(s *stream) {
	s.tried = true
	s.part.doubted = max(s.part.doubted, s.batch.count())
}

// confirm settles the batch.
func (l *lane) confirm(s *stream) {
	n, size := s.batch.count(), s.batch.size()
	if !s.stored(s.answer.duplicate()) {
		l.renew(s, noAnswer(s, kafkago.DuplicateSequenceNumber))
		return
	}
	s.limit.stored(size)
	l.tally.acks += n
	l.confirmed(&s.part, n)
	l.sink.paused.confirmed(s)
}

// confirmed settles the first n events of the part.
func (l *lane) confirmed(p *part, n int) {
	for _, i := range p.todo[:n] {
		l.outcomes[i].State = sink.Confirmed
	}
	p.pass(n)
}

// pass leaves the first n events behind.
func (p *part) pass(n int) {
	p.todo = p.todo[n:]
	p.doubted = max(0, p.doubted-n)
	if p.suspects = max(0, p.suspects-n); p.suspects == 0 {
		p.most = 0
	}
	p.calm()
}

// calm is the end of a batch's trouble.
func (p *part) calm() {
	p.since, p.tries, p.same, p.odd, p.anew, p.cut, p.fault = time.Time{}, 0, 0, 0, 0, 0, nil
}

// lost: the batch may be stored, now or later. The same bytes go out again on another connection, to whoever leads by then:
// at once, unless the batch was in trouble before.
func (l *lane) lost(s *stream) {
	p, a := &s.part, &s.answer
	l.doubt(s)
	l.tally.timeouts += s.batch.count()
	// Over a request that is larger than its socket.request.max.bytes a broker ends the connection without a word. When a
	// single record larger than any merged request was alone in its request, and the broker ended two connections in a
	// row over it that it had just opened, the record is to blame.
	if p.cut++; !a.cut || s.batch.count() > 1 || len(s.bytes) <= maxRequest {
		p.cut = 0
	}
	if p.cut == 2 {
		l.rejectAlone(s, &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: topicName(s.shown()),
			Words: fmt.Sprintf("the broker ends the connection over a request of %d bytes (socket.request.max.bytes)", len(s.bytes)),
		})
		return
	}
	first := p.tries == 0
	l.trouble(s, noAnswer(s, a.why))
	if first {
		p.resend = p.since
	}
}

// identified acts on the answer to InitProducerID.
func (l *lane) identified(s *stream) {
	a := &s.answer
	if a.code == 0 {
		s.identified(a)
		return
	}
	v := judge(a.code)
	fault := v.fault(s.shown(), s.partition, words(a.code, a.message))
	if v.reason == sink.NotPermitted {
		l.refuse(s, fault)
		return
	}
	l.trouble(s, fault) // the controller is being elected, say
}

// renew has the same events sent by a new producer, after a pause when that did not help before.
func (l *lane) renew(s *stream, fault *sink.Fault) {
	s.renew()
	if s.part.anew++; s.part.anew > 1 {
		l.trouble(s, fault)
	}
}

// shrink: the batch is too large, or its only record is.
func (l *lane) shrink(s *stream, fault *sink.Fault) {
	size := s.batch.size()
	s.limit.tooLarge(size)
	if s.batch.count() == 1 {
		fault.Words += fmt.Sprintf(" (the batch of this record alone has %d bytes)", size)
		l.rejectAlone(s, fault)
		return
	}
	s.drop()
	s.part.calm()
}

// isolate rejects the records that the broker has named, or goes on with half of the batch when it names none. The rest is
// sent again, but for the later events of the rejected ones' keys.
func (l *lane) isolate(s *stream, fault *sink.Fault, culprits []int32) {
	p, n := &s.part, s.batch.count()
	if n == 1 {
		l.rejectAlone(s, fault)
		return
	}
	named := false
	for _, c := range culprits {
		if c >= 0 && int(c) < n {
			named = true
			l.reject(p.todo[c], fault)
		}
	}
	if !named {
		p.most, p.suspects = n/2, max(p.suspects, n)
	}
	s.drop()
	p.calm()
}

// rejectAlone rejects the only record of the batch.
func (l *lane) rejectAlone(s *stream, fault *sink.Fault) {
	l.reject(s.part.todo[0], fault)
	s.drop()
	s.part.pass(1)
}

// refuse: the destination is at fault. A batch in doubt is not said to be rejected as long as it can be sent again.
func (l *lane) refuse(s *stream, fault *sink.Fault) {
	if s.tried {
		l.trouble(s, fault)
		return
	}
	l.giveUp(s, fault)
}

// giveUp rejects all that the part has. A batch in doubt stays in the stream: when the same events come again, so do the
// same bytes.
func (l *lane) giveUp(s *stream, fault *sink.Fault) {
	p := &s.part
	if s.tried {
		s.remember(l.events, p.todo[:s.batch.count()])
	} else {
		s.drop()
	}
	for n, i := range p.todo {
		if n < p.doubted || !l.isHeld(i) { // "unsent" would be untrue of the later events of a key that may be stored
			l.reject(i, fault)
		}
	}
	p.todo, p.phase = p.todo[:0], done
	l.sink.paused.refused(s.topic, s.partition, fault)
}
