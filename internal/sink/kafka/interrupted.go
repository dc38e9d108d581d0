// The end of a call: what becomes of its parts when its context ends first.

package kafka

import (
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
		pr.letGo() // nobody may come for it for long
		l.routes[pr.Topic].producers[pr.Partition] = nil
	}
	for _, i := range p.todo[:p.doubted] {
		if o := &l.Outcomes[i]; o.State == sink.Unsent {
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
