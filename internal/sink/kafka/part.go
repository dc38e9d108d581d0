// The events of one call that go to one partition, and their progress.

package kafka

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
)

// part is the events of the present call for one partition, and their progress. The first of them
// are in the producer's batch. Nothing here blocks.
//
//	ready ─ fill, seal, push ─▶ out ─ answer ─▶ ready: the next batch, a smaller one, or the same under a new producer
//	  ▲                                    ├─▶ waiting: for a leader, or until the same bytes may go again
//	  └────────── a leader, or time ───────┘   └─▶ done: nothing is left, the destination is at fault, or split again
type part struct {
	todo  []int // indexes of the events that are not answered, in order; the batch has the first
	room  []int // the memory of todo
	phase phase

	maxRecords int // in a batch, while a record at fault is searched for; 0: no bound
	suspects   int // how many events at the front of todo may be that record
	doubted    int // how many events at the front of todo were sent, and may be stored

	sent client.Leader  // where the batch was sent last
	same int            // failed attempts since it was sent to another leader
	at   *client.Broker // out: whose queue it is in; nil: the control connection has it

	// The record of a batch's trouble.
	since    time.Time   // when it began; zero: there is none
	outage   time.Time   // when no other partition took batches last; zero: one always did
	tries    int         // failed attempts since: answers, and checks of the metadata
	retries  int         // answers in a row that the batch is repeated for a few times
	renewals int         // producer ids in a row for this batch
	cut      int         // connections in a row that ended over this batch alone
	due      time.Time   // waiting: when metadata is asked for again; crowded: of the next try
	resend   time.Time   // waiting: when the batch may go to the same leader again
	fault    *sink.Fault // what to blame if the trouble does not end
}

type phase uint8

const (
	done phase = iota
	ready
	out // with a worker, or with the control connection
	waiting
	crowded // its next batch waits for room: see maxHeld
)

// reset prepares the part for a new call, without events.
func (p *part) reset() { *p = part{room: p.room, todo: p.room[:0]} }

// confirmed settles the first n events of the part.
func (l *lane) confirmed(p *part, n int) {
	for _, i := range p.todo[:n] {
		l.Outcomes[i].State = sink.Confirmed
	}
	p.pass(n)
}

// pass removes the first n events from todo: they are done.
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
	p.since, p.outage, p.tries, p.same, p.retries, p.renewals, p.cut, p.fault = time.Time{}, time.Time{}, 0, 0, 0, 0, 0, nil
}

// giveUp rejects all events of the part.
func (l *lane) giveUp(pr *producer, fault *sink.Fault) {
	p := &pr.part
	pr.drop()
	for n, i := range p.todo {
		// a later event of a rejected key stays Unsent, unless it may be stored
		if n < p.doubted || !l.IsBehindRejected(i) {
			l.Reject(i, fault)
		}
	}
	p.todo, p.phase = p.todo[:0], done
}
