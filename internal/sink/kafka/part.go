// The events of one call that go to one partition, and their progress.

package kafka

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// part is the events of the present call that go to one partition, and their progress. The first of
// them are in the producer's batch. Nothing here blocks.
//
//	ready ─ fill, seal, push ─▶ out ─ answer ─▶ ready: the next batch, a smaller one, or the same under a new producer
//	  ▲                                    ├─▶ waiting: for a leader, or until the same bytes may go again
//	  └────────── a leader, or time ───────┘   └─▶ done: nothing is left, the destination is at fault, or split again
type part struct {
	// places in the call of the events that are not answered, each key's in order; the batch has
	// the first of them
	todo  []int32
	room  []int32 // the memory of todo
	phase phase

	maxRecords int // records in a batch at most while a culprit is searched for; 0: no bound
	suspects   int // the culprit is among this many first ones of todo
	doubted    int // this many first ones of todo were sent, and may be stored

	sent client.Leader // the leader that the batch was sent to last
	same int           // failed attempts since then
	// out: whose queue it went to; nil: the control connection has it, for an id
	at    *client.Broker
	since time.Time // when the batch first met trouble; zero: it has not
	// failed attempts since: answers, and checks of the metadata
	tries    int
	retries  int       // answers in a row that are worth a few repetitions
	renewals int       // producers for one batch in a row
	cut      int       // connections in a row that ended over this batch alone
	due      time.Time // waiting: metadata is asked for again
	// waiting: from now on the batch may go to the leader that it was sent to already
	resend time.Time
	fault  *sink.Fault // what is to blame if the trouble does not end
}

type phase uint8

const (
	done phase = iota
	ready
	out // with a worker, or with the control connection
	waiting
)

// reset makes the part one of a new call, without events.
func (p *part) reset() { *p = part{room: p.room, todo: p.room[:0], at: p.at} }

// confirmed settles the first n events of the part.
func (l *lane) confirmed(p *part, n int) {
	for _, i := range p.todo[:n] {
		l.outcomes[i].State = sink.Confirmed
	}
	p.pass(n)
}

// pass removes the first n events, which are done.
func (p *part) pass(n int) {
	p.todo = p.todo[n:]
	p.doubted = max(0, p.doubted-n)
	if p.suspects = max(0, p.suspects-n); p.suspects == 0 {
		p.maxRecords = 0
	}
	p.endTrouble()
}

// endTrouble resets the record of a batch's trouble.
func (p *part) endTrouble() {
	p.since, p.tries, p.same, p.retries, p.renewals, p.cut, p.fault = time.Time{}, 0, 0, 0, 0, 0, nil
}

// giveUp rejects all events of the part. A batch in doubt stays in the producer: when the same
// events come again, so do the same bytes.
func (l *lane) giveUp(s *producer, fault *sink.Fault) {
	p := &s.part
	if s.Tried {
		s.remember(l.events, p.todo[:s.batch.Count()])
	} else {
		s.drop()
	}
	for n, i := range p.todo {
		// "unsent" would be untrue of the later events of a key that may be stored
		if n < p.doubted || !l.isBehindRejected(i) {
			l.reject(i, fault)
		}
	}
	p.todo, p.phase = p.todo[:0], done
	l.sink.paused.refused(s.Topic, s.Partition, fault)
}
