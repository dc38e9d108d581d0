// The next batch of a part, and the leader it goes to.

package kafka

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// proceed sends a ready part: to the queue of its leader, or to the control connection for a
// producer id.
func (l *lane) proceed(s *producer, known *client.Metadata) {
	p := &s.part
	if s.batch == nil && !l.fill(s) {
		p.phase = done
		return
	}
	if s.id == client.None {
		p.phase, p.at = out, nil
		l.sink.client.Control.Identify(&s.ProducerBatch)
		return
	}
	leader, ok := l.leaderOf(s, known)
	switch {
	case !ok:
	case leader.Node == client.None:
		l.postpone(s, noAnswer(s, errNoLeader))
	default:
		s.seal()
		if leader != p.sent {
			p.same = 0
		}
		p.phase, p.sent, p.at = out, leader, l.sink.client.Broker(leader.Node)
		p.at.Push(&s.ProducerBatch)
		l.posted = append(l.posted, p.at)
	}
}

// fill makes the next batch of the part's first events. What can never be sent is rejected on the
// way, and later events of a rejected key stay unsent. It is false when nothing is left.
func (l *lane) fill(s *producer) bool {
	p, limit := &s.part, s.sizeLimit.Next()
	s.batch = l.sink.pool.Get()
	kept, next, doubted, suspects := 0, 0, 0, 0
	for ; next < len(p.todo); next++ {
		i := p.todo[next]
		if l.outcomes[i].State != sink.Unsent || l.isBehindRejected(i) {
			continue
		}
		m := &l.encoder
		if fault := m.Build(l.events[i]); fault != nil {
			l.reject(i, fault)
			continue
		}
		size := len(m.Key) + len(m.Value) + len(m.Headers) + batch.RecordFrame
		if kept > 0 && (kept == p.maxRecords || s.batch.Size()+size > limit) {
			break
		}
		// cannot be: build bounds a record far below what the protocol can carry
		if !s.batch.Add(&m.Record) {
			l.reject(i, &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge, Text: "the protocol carries no such record"})
			continue
		}
		p.todo[kept] = i
		kept++
		if next < p.doubted {
			doubted++
		}
		if next < p.suspects {
			suspects++
		}
	}
	p.doubted, p.suspects = doubted+max(0, p.doubted-next), suspects+max(0, p.suspects-next)
	p.todo = slices.Delete(p.todo, kept, next)
	if kept == 0 {
		s.releaseBatch()
	}
	return kept > 0
}
