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

// apply does what an answer asks for.
func (l *lane) apply(pr *producer) {
	p, a := &pr.part, &pr.Answer
	if a.Kind == client.Answered {
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
	case client.Unsent:
		p.cut = 0
		l.postpone(pr, noAnswer(pr, a.Why))
	case client.Outdated:
		l.renew(pr, noAnswer(pr, client.ErrOutdated))
	case client.Lost:
		l.lost(pr)
	case client.Identity:
		l.identified(pr)
	case client.Answered:
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
	fault := v.fault(pr.shown(), pr.Partition, conn.ErrorText(a.Code, a.Message))
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
	if p.cut++; !a.Cut || pr.batch.Count() > 1 || len(pr.Bytes) <= client.MaxRequest {
		p.cut = 0
	}
	if p.cut == 2 {
		l.rejectAlone(pr, &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: record.TopicName(pr.shown()),
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
	fault := v.fault(pr.shown(), pr.Partition, conn.ErrorText(a.Code, a.Message))
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
