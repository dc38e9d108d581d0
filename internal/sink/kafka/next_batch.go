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
	if pr.batch == nil {
		if p.phase = l.fill(pr); p.phase != ready {
			return
		}
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

// add adds the record of an event to the batch, which is ready then. It returns done when it does
// not fit behind others, and crowded when there is no room for it.
func (l *lane) add(pr *producer, i int) (phase, *sink.Fault) {
	m := &l.builder
	for alone := l.sink.layout.Large.Alone(l.Events[i]); ; alone = true {
		m.Enter(alone)
		result, fault := l.addRecord(pr, i)
		if alone {
			m.Forget()
		}
		if again := m.Leave(alone); fault == nil || !again {
			return result, fault
		}
	}
}

func (l *lane) addRecord(pr *producer, i int) (phase, *sink.Fault) {
	m := &l.builder
	if fault := m.Build(l.Events[i]); fault != nil {
		return done, fault
	}
	size := len(m.Key) + len(m.Value) + len(m.Headers) + batch.RecordFrame
	n, to := pr.batch.Count(), pr.batch.Size()+size
	switch {
	case n > 0 && (n == pr.part.maxRecords || to > pr.sizeLimit):
		return done, nil
	case pr.mayGrow(to):
		pr.batch.Add(&m.Record)
		return ready, nil
	case n > 0:
		return done, nil
	}
	return crowded, nil
}

// fill makes the next batch of the part's first events. It returns done when none is left, and
// crowded when the batch has to wait for room. It rejects what can never be sent. Later events of a
// rejected key stay Unsent.
func (l *lane) fill(pr *producer) phase {
	p := &pr.part
	pr.batch = l.sink.batches.Get().(*batch.Batch) //nolint:forcetypeassert // the pool has no others
	result := done
	kept, next, doubted, suspects := 0, 0, 0, 0
	for ; next < len(p.todo); next++ {
		i := p.todo[next]
		if l.Outcomes[i].State != sink.Unsent || l.IsBehindRejected(i) {
			continue
		}
		var fault *sink.Fault
		if result, fault = l.add(pr, i); fault != nil {
			l.Reject(i, fault)
			continue
		}
		if result != ready {
			break
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
	l.builder.Forget() // the broker may take long to answer
	p.doubted, p.suspects = doubted+max(0, p.doubted-next), suspects+max(0, p.suspects-next)
	p.todo = slices.Delete(p.todo, kept, next)
	switch {
	case kept > 0:
		return ready
	case result == crowded:
		p.due = time.Now().Add(pauseMin)
	default:
		result = done
	}
	pr.releaseBatch()
	return result
}
