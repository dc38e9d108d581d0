// What a broker's answer does to a part.

package kafka

import (
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// resume checks what an earlier call has left in the producer: the batch of the same events is sent
// again unchanged, or was already stored; a batch of other events is given up.
func (l *lane) resume(s *producer) {
	p := &s.part
	p.phase = ready
	if len(s.of) == 0 {
		return
	}
	switch n := len(s.of); {
	case !s.resumes(l.events, p.todo):
		s.drop()
	case s.storedLate:
		l.confirmed(p, n)
	case s.Tried:
		p.doubted = n
	}
	s.forget()
}

// apply does what an answer asks for.
func (l *lane) apply(s *producer) {
	p, a := &s.part, &s.Answer
	if s.late {
		s.settleLate()
		if p.phase == out { // the present call has events for it, too
			l.resume(s)
		}
		return
	}
	p.phase = ready
	switch a.Kind {
	case client.Unsent:
		p.cut = 0
		l.postpone(s, noAnswer(s, a.Why))
	case client.Outdated:
		l.renew(s, noAnswer(s, client.ErrOutdated))
	case client.Lost:
		l.lost(s)
	case client.Identity:
		l.identified(s)
	case client.Answered:
		p.cut = 0
		l.judged(s, s.verdict())
	}
}

// judged acts on the broker's answer to the batch.
func (l *lane) judged(s *producer, v verdict) {
	p, a := &s.part, &s.Answer
	if v.action == confirm {
		l.confirm(s)
		return
	}
	l.stats.nacks += s.batch.Count()
	fault := v.fault(s.shown(), s.Partition, conn.ErrorText(a.Code, a.Message))
	if v.doubt {
		l.doubt(s)
	}
	if p.retries++; v.tries == 0 {
		p.retries = 0
	} else if p.retries <= v.tries {
		v.action = again
	}
	switch v.action {
	case again:
		l.postpone(s, fault)
	case renew:
		l.renew(s, fault)
	case shrink:
		l.shrink(s, fault)
	case isolate:
		l.isolate(s, fault, a.Culprits)
	case refuse:
		l.refuse(s, fault)
	case confirm:
	}
}

// doubt: the batch may be in the log.
func (l *lane) doubt(s *producer) {
	s.Tried = true
	s.part.doubted = max(s.part.doubted, s.batch.Count())
}

// confirm settles the batch.
func (l *lane) confirm(s *producer) {
	n, size := s.batch.Count(), s.batch.Size()
	if !s.stored(s.Answer.Duplicate()) {
		l.renew(s, noAnswer(s, kafkago.DuplicateSequenceNumber))
		return
	}
	s.sizeLimit.Stored(size)
	l.stats.acks += n
	l.confirmed(&s.part, n)
	l.sink.paused.confirmed(s)
}

// lost: the batch may be stored, now or later. The same bytes go out again on another connection,
// to whoever leads by then: at once, unless the batch was in trouble before.
func (l *lane) lost(s *producer) {
	p, a := &s.part, &s.Answer
	l.doubt(s)
	l.stats.timeouts += s.batch.Count()
	// Over a request that is larger than its socket.request.max.bytes a broker ends the connection
	// without an answer. When a single record larger than any merged request was alone in its
	// request, and the broker ended two connections in a row over it that it had just opened, the
	// record is to blame.
	if p.cut++; !a.Cut || s.batch.Count() > 1 || len(s.Bytes) <= client.MaxRequest {
		p.cut = 0
	}
	if p.cut == 2 {
		l.rejectAlone(s, &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: record.TopicName(s.shown()),
			Text: fmt.Sprintf("the broker ends the connection over a request of %d bytes (socket.request.max.bytes)", len(s.Bytes)),
		})
		return
	}
	first := p.tries == 0
	l.postpone(s, noAnswer(s, a.Why))
	if first {
		p.resend = p.since
	}
}

// identified acts on the answer to InitProducerID.
func (l *lane) identified(s *producer) {
	a := &s.Answer
	if a.Code == 0 {
		s.identified(a)
		return
	}
	v := judge(a.Code)
	fault := v.fault(s.shown(), s.Partition, conn.ErrorText(a.Code, a.Message))
	if v.reason == sink.NotPermitted {
		l.refuse(s, fault)
		return
	}
	l.postpone(s, fault) // for example, the controller is being elected
}

// renew sends the same events with a new producer, after a pause if that has failed before.
func (l *lane) renew(s *producer, fault *sink.Fault) {
	s.renew()
	if s.part.renewals++; s.part.renewals > 1 {
		l.postpone(s, fault)
	}
}

// shrink: the batch is too large, or its only record is.
func (l *lane) shrink(s *producer, fault *sink.Fault) {
	size := s.batch.Size()
	s.sizeLimit.TooLarge(size)
	if s.batch.Count() == 1 {
		fault.Text += fmt.Sprintf(" (the batch of this record alone has %d bytes)", size)
		l.rejectAlone(s, fault)
		return
	}
	s.drop()
	s.part.endTrouble()
}

// isolate rejects the records that the broker has named, or goes on with half of the batch when it
// names none. The rest is sent again, but for the later events of the rejected ones' keys.
func (l *lane) isolate(s *producer, fault *sink.Fault, culprits []int32) {
	p, n := &s.part, s.batch.Count()
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
		p.maxRecords, p.suspects = n/2, max(p.suspects, n)
	}
	s.drop()
	p.endTrouble()
}

// rejectAlone rejects the only record of the batch.
func (l *lane) rejectAlone(s *producer, fault *sink.Fault) {
	l.reject(s.part.todo[0], fault)
	s.drop()
	s.part.pass(1)
}

// refuse: the destination is at fault. A batch in doubt is not rejected while it can be sent again.
func (l *lane) refuse(s *producer, fault *sink.Fault) {
	if s.Tried {
		l.postpone(s, fault)
		return
	}
	l.giveUp(s, fault)
}
