// The end of a call: what becomes of its parts when its context ends first, and what its error
// says.

package kafka

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// interrupt ends the parts of a call whose context is done, and gives their batches up. Their
// events come again in another call, under other sequence numbers.
func (l *lane) interrupt() {
	for _, pr := range l.inbox.take() {
		l.apply(pr)
	}
	for _, pr := range l.parts {
		l.interruptPart(pr)
	}
	l.signal() // what was pushed is withdrawn, most likely
}

func (l *lane) interruptPart(pr *producer) {
	p := &pr.part
	switch {
	case p.phase == done:
		return
	case p.phase != out || l.withdraw(pr):
		pr.drop()
	default:
		if p.at != nil {
			p.doubted = max(p.doubted, pr.batch.Count())
		}
		pr.abandoned = true
		l.routes[pr.Topic].producers[pr.Partition] = nil
	}
	for _, i := range p.todo[:p.doubted] {
		if o := &l.outcomes[i]; o.State == sink.Unsent {
			o.State = sink.Unknown
		}
	}
	p.todo, p.phase = p.todo[:0], done
}

// withdraw takes the producer back from the client; false when it is too late for that.
func (l *lane) withdraw(pr *producer) bool {
	if pr.part.at == nil {
		return l.sink.client.Control.Withdraw(&pr.ProducerBatch)
	}
	return pr.part.at.Withdraw(&pr.ProducerBatch)
}

// unavailable is publish's error. By the contract of Publish, an error comes with at least one
// Unknown outcome, or all outcomes are Unsent. So when some events were answered and nothing is in
// doubt, the others become Unknown; that only makes the caller more careful. Events behind a
// rejected one stay Unsent and are not counted here. When no other events are left, because the
// last answer came with the end of ctx, there is no error.
func (l *lane) unavailable(err error) error {
	answered, doubted, open := 0, 0, 0
	for i, o := range l.outcomes {
		switch {
		case o.State == sink.Unknown:
			doubted++
		case o.State != sink.Unsent:
			answered++
		case !l.isBehindRejected(int32(i)):
			open++
		}
	}
	if doubted+open == 0 {
		return nil
	}
	for i := range l.outcomes {
		if o := &l.outcomes[i]; answered > 0 && doubted == 0 && o.State == sink.Unsent && !l.isBehindRejected(int32(i)) {
			o.State = sink.Unknown
		}
	}
	return fmt.Errorf("publish: %w", err)
}
