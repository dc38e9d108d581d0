// The end of a call: what becomes of its parts when its context ends first, and what its error
// says.

package kafka

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// interrupt ends the parts of a call whose context is done. What a worker has stays there: a later
// call handles its answer (late).
func (l *lane) interrupt() {
	for _, s := range l.inbox.take() {
		l.apply(s)
	}
	for _, s := range l.parts {
		l.interruptPart(s)
	}
	for _, b := range l.posted { // withdrawn, most likely
		b.Signal()
	}
	clear(l.posted)
	l.posted = l.posted[:0]
}

func (l *lane) interruptPart(s *producer) {
	p := &s.part
	if p.phase == done {
		return
	}
	if p.phase == out && !s.late && (p.at == nil && l.sink.client.Control.Withdraw(&s.ProducerBatch) || p.at != nil && p.at.Withdraw(&s.ProducerBatch)) {
		p.phase = ready
	}
	switch {
	case s.late: // since an earlier call, and its events are not this part's
	case p.phase == out && p.at == nil:
		s.late = true
		s.drop()
	case p.phase == out:
		s.late = true
		p.doubted = max(p.doubted, s.batch.Count())
		s.remember(l.events, p.todo[:s.batch.Count()])
	case s.Tried:
		s.remember(l.events, p.todo[:s.batch.Count()])
	default:
		s.drop()
	}
	for _, i := range p.todo[:p.doubted] {
		if o := &l.outcomes[i]; o.State == sink.Unsent {
			o.State = sink.Unknown
		}
	}
	p.todo, p.phase = p.todo[:0], done
}

// unavailable is publish's error. It keeps the contract's promise that at least one outcome is
// Unknown or all are Unsent: where nothing is in doubt but a part was answered, the rest is called
// Unknown, which costs the caller some care only. What waits behind a rejected event does not
// count: it stays Unsent. Where nothing else is left, since the last answer came with the end of
// ctx, the call is complete and there is no error.
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
