// The next batch of a part, and the leader it goes to.

package kafka

import (
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// proceed sends a ready part: to the queue of its leader, or to the control connection for a
// producer id.
func (l *lane) proceed(pr *producer, known *client.Metadata) {
	p := &pr.part
	if pr.batch == nil && !l.fill(pr) {
		p.phase = done
		return
	}
	if pr.id == client.None {
		p.phase, p.at = out, nil
		l.sink.client.Control.Identify(&pr.ProducerBatch)
		return
	}
	leader, ok := l.currentLeader(pr, known)
	switch {
	case !ok:
	case leader.Node == client.None:
		l.postpone(pr, noAnswer(pr, errNoLeader))
	default:
		pr.seal()
		if leader != p.sent {
			p.same = 0
		}
		pr.takes.begun(time.Now())
		p.phase, p.sent, p.at = out, leader, l.sink.client.Broker(leader.Node)
		p.at.Push(&pr.ProducerBatch)
		l.posted = append(l.posted, p.at)
	}
}

// signal has the brokers' workers take what was pushed.
func (l *lane) signal() {
	for _, b := range l.posted {
		b.Signal()
	}
	clear(l.posted)
	l.posted = l.posted[:0]
}

// fill makes the next batch of the part's first events; false when none is left. It rejects what
// can never be sent. Later events of a rejected key stay Unsent.
func (l *lane) fill(pr *producer) bool {
	p := &pr.part
	pr.batch = l.sink.batches.Get().(*batch.Batch) //nolint:forcetypeassert // the pool has no others
	kept, next, doubted, suspects := 0, 0, 0, 0
	for ; next < len(p.todo); next++ {
		i := p.todo[next]
		if l.Outcomes[i].State != sink.Unsent || l.IsBehindRejected(i) {
			continue
		}
		m := &l.builder
		if fault := m.Build(l.Events[i]); fault != nil {
			l.Reject(i, fault)
			continue
		}
		size := len(m.Key) + len(m.Value) + len(m.Headers) + batch.RecordFrame
		if kept > 0 && (kept == p.maxRecords || pr.batch.Size()+size > pr.sizeLimit) {
			break
		}
		pr.batch.Add(&m.Record)
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
		pr.releaseBatch()
	}
	return kept > 0
}
