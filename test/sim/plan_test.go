package sim

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// How many exchanges (or topics) there are, and routing keys (or partitions) of each.
const (
	exchangesOrTopics = 2
	dests             = 2

	// where dead letters are mirrored to; no event goes there
	mirrorExchangeOrTopic = exchangesOrTopics
	places                = exchangesOrTopics + 1
)

// plan is all that is drawn before anything runs, but for the delays.
type plan struct {
	seed     uint64
	ordering relay.Ordering // of the line
	scope    event.Scope
	// the broker is Kafka's kind: a call is appended as a whole, and known when it is made again
	atomic bool
	hold   bool
	calm   bool // no crash, no loss: nothing may come twice
	mirror bool // dead letters are mirrored

	held, budget     int
	maxInFlightBytes int64
	roundBytes       int64 // of a statement of the writer
	budgetBytes      int64 // of rows that are fed
	oversize         int64 // bytes of the largest event, if it is larger than the in-flight budget
	// rows of an ordering group that are read at once, and of a page: fewer than are asked for
	rows, page int
	lanes      [2]int // of the two processes
	attempts   int
	backoff    time.Duration
	maxBackoff time.Duration
	maxAge     time.Duration

	lost     int // statements of a thousand with an unknown outcome
	cut      int // calls of a thousand that lose their connection
	spared   int // events of a thousand that the sink does not send for no reason
	speed    [actors]time.Duration
	events   []*simEvent
	txs      []*tx
	usual    int // of txs; the others are phase C's
	happens  []happening
	chaosEnd time.Duration
}

// actor is what has a speed.
type actor int

const (
	theWriter actor = iota
	theFeeder
	theLookup
	theBroker
	theReader
	theReporter
	actors
)

// simEvent is one outbox row, and what is true of it.
type simEvent struct {
	n               int
	tx              *tx
	pos             event.Position
	key             int // 0: it has none
	exchangeOrTopic int
	// of the exchange or topic: a routing key, or for Kafka the partition that its key has
	dest   int
	fault  bool
	refuse bool // the database refuses its row
	noEnd  bool // the database refuses what came of its row
	poison int  // -1: for ever; else refused so many times more

	made event.Event

	copyPoison int // as poison, of its copy in the mirror
	copies     int // that the mirror's destination has

	delivered int         // by the broker, ever
	closed    bool        // a dead letter of it was discarded, purged or replayed, ever
	refusals  int         // for a fault of its own, ever
	company   []*simEvent // those behind it in a call that it was in (pipelined)
	excused   bool        // it was refused in such a call
	replays   int         // requests, ever
	condemned bool        // an operator asked for its end
	straight  bool        // it has to be delivered without the tables
}

type tx struct {
	n           int
	commit, end pglogrepl.LSN
	keepalive   pglogrepl.LSN // after it; 0: none
	at          time.Duration
	events      []*simEvent
}

// happening is what is done to the world at some moment.
type happening struct {
	at   time.Duration
	what string
	do   func(*world)
}

func (e *simEvent) String() string {
	return fmt.Sprintf("e%d", e.n)
}

func unitName(u int) []byte { return []byte{'x', byte('0' + u)} }
func keyName(r int) []byte  { return []byte{'r', byte('0' + r)} }

func newPlan(seed uint64) *plan {
	d := newDice(seed)
	p := &plan{seed: seed}
	switch d.n(10) {
	case 0, 1, 2, 3, 4:
		p.ordering, p.scope = relay.Key, event.PerKey
	case 5, 6:
		p.ordering, p.scope, p.atomic = relay.Pipelined, event.PerKey, true
	case 7:
		p.ordering, p.scope = relay.Commit, event.PerExchangeOrTopic
	case 8:
		p.ordering, p.scope, p.atomic = relay.Commit, event.PerExchangeOrTopic, true
	default:
		p.ordering, p.scope = relay.Key, event.PerKey
		if d.in(300) {
			p.ordering, p.scope = relay.None, event.Free
		}
	}
	p.hold = d.in(400)
	p.calm = d.in(250)
	p.held = pick(d, 1, 2, 3, 100)
	p.budget = pick(d, 2, 4, 8, 100)
	for i := range p.lanes {
		p.lanes[i] = 1 + d.n(3)
		if p.ordering == relay.Commit {
			p.lanes[i] = 1
		}
	}
	p.rows, p.page = pick(d, 1, 2, 3, 100), pick(d, 1, 2, 500)
	if p.scope == event.Free { // what is not counted is not known to go on
		p.rows = 100
	}
	p.attempts = 1 + d.n(4)
	p.backoff = pick(d, 20*time.Millisecond, 200*time.Millisecond, time.Second)
	p.maxBackoff = p.backoff * time.Duration(1+d.n(4))
	if d.in(200) {
		p.maxAge = pick(d, time.Second, 5*time.Second)
	}
	p.spared = pick(d, 0, 0, 20)
	if !p.calm {
		p.lost = pick(d, 0, 20, 150)
		p.cut = pick(d, 0, 50, 200)
	}
	usual := pick(d, 100*time.Microsecond, 3*time.Millisecond, 50*time.Millisecond)
	for i := range p.speed {
		p.speed[i] = usual
		if d.in(500) {
			p.speed[i] = pick(d, 30*time.Microsecond, time.Millisecond, 20*time.Millisecond, 300*time.Millisecond)
		}
	}
	p.chaosEnd = pick(d, 2*time.Second, 8*time.Second, 25*time.Second)
	p.drawEvents(d)
	p.drawBytes(newDice(seed, 5))
	p.drawMirror(newDice(seed, 4))
	p.drawHappenings(d)
	return p
}

func (p *plan) drawEvents(d *dice) {
	keys, oneExchangeOrTopic := 1+d.n(4), d.in(300)
	poisonous := pick(d, 0, 50, 200, 400)
	bad := 0
	if d.in(200) {
		bad = 100
	}
	total := 4 + d.n(24)
	lsn := pglogrepl.LSN(1000)
	at := time.Duration(0)
	for len(p.events) < total {
		t := &tx{n: len(p.txs), commit: lsn, end: lsn + 8}
		lsn += 8
		if d.in(300) {
			t.keepalive = t.end + 4
			lsn += 4
		}
		switch d.n(6) {
		case 0: // at once
		case 1, 2:
			at += d.upTo(2 * p.speed[theBroker])
		case 3, 4:
			at += d.upTo(50 * time.Millisecond)
		default:
			at += d.upTo(p.chaosEnd / 4)
		}
		t.at = at
		for range pick(d, 0, 1, 1, 1, 2, 3, 5) {
			e := p.add(t, d.n(keys+1), d.n(exchangesOrTopics), d.n(dests))
			if d.in(750) && e.key == 0 {
				e.key = 1
			}
			if oneExchangeOrTopic {
				e.exchangeOrTopic = 0
			}
			switch {
			case d.in(20):
				e.fault = true
			case d.in(poisonous):
				e.poison = pick(d, -1, 1, 2, 5)
			}
			e.refuse, e.noEnd = d.in(bad), d.in(bad/2)
		}
		p.txs = append(p.txs, t)
	}
	// What is left of the events comes when nothing fails any more.
	for i, t := range p.txs {
		if t.at > p.chaosEnd || i >= len(p.txs)*3/4 {
			t.at = max(t.at, p.chaosEnd) + d.upTo(50*time.Millisecond)
			if prev := p.txs[max(i-1, 0)].at; t.at < prev {
				t.at = prev
			}
		}
	}
	p.usual = len(p.txs)
	for n := range 2 {
		for u := range exchangesOrTopics {
			t := &tx{n: len(p.txs), commit: lsn, end: lsn + 8}
			lsn += 8
			for key := range keys + 1 {
				if key > 0 || !p.atomic { // else its partition is another one in each round
					// An age of seconds may dead-letter the first one before it is a probe; the
					// destination stays paused then.
					p.add(t, key, u, (key+u)%dests).straight = n == 1 && p.maxAge == 0
				}
			}
			p.txs = append(p.txs, t)
		}
	}
	for _, e := range p.events {
		e.make(p)
	}
}

// drawBytes draws bounds of memory that bind, and payloads as large as them, in some of the seeds.
// It has dice of its own.
func (p *plan) drawBytes(d *dice) {
	p.maxInFlightBytes, p.roundBytes, p.budgetBytes = 256<<10, 2<<20, 8<<20
	switch {
	case d.in(150):
		p.maxInFlightBytes, p.roundBytes, p.budgetBytes = pick[int64](d, 50, 200, 1000), pick[int64](d, 50, 200, 1000), pick[int64](d, 50, 400, 2000)
	case d.in(10): // as large as it has to be for chunks of several events
	default:
		return
	}
	for _, e := range p.events {
		if size := p.maxInFlightBytes / pick[int64](d, 2, 4, 20); d.in(300) {
			e.made.Payload = payload(e.n, d.n(int(size)+1))
		} else if d.in(50) {
			// more than the whole in-flight budget
			e.made.Payload = payload(e.n, int(p.maxInFlightBytes)+d.n(100))
		}
		if size := int64(e.made.Size()); size > p.maxInFlightBytes {
			p.oversize = max(p.oversize, size)
		}
	}
}

// perRound is how many transactions each round of phase C commits.
const perRound = exchangesOrTopics

// add adds an event to a transaction.
func (p *plan) add(t *tx, key, exchangeOrTopic, dest int) *simEvent {
	e := &simEvent{
		n: len(p.events), tx: t, key: key, exchangeOrTopic: exchangeOrTopic, dest: dest,
		// every other frame is foreign
		pos: event.Position{Commit: t.commit, Index: uint32(2 * len(t.events))},
	}
	t.events = append(t.events, e)
	p.events = append(p.events, e)
	return e
}

// make makes what the stream brings of it.
func (e *simEvent) make(p *plan) {
	ev := &e.made
	*ev = event.Event{
		Position: e.pos, CommitTime: time.Unix(int64(e.tx.n), 0), Time: time.Unix(int64(e.tx.n), 0),
		ID: fmt.Append(nil, e.pos), Aggregate: []byte("a"), Type: []byte{byte('0' + e.exchangeOrTopic), byte('0' + e.dest)},
		Payload: payload(e.n, 1+e.n%7),
	}
	switch {
	case e.fault:
		ev.Fault, ev.Raw = errUndecodable, []byte(`{"id":null}`)
		e.key = 0
	case e.key > 0:
		ev.Ordered, ev.Key = true, []byte{byte('k'), byte('0' + e.key)}
		ev.Hash = event.HashKey(ev.Aggregate, ev.Key)
	}
	if !ev.Ordered {
		ev.Hash = event.HashPosition(e.pos)
	}
	if p.atomic {
		e.dest = int(ev.Hash % dests) // the partition is the key's
		ev.Type[1] = byte('0' + e.dest)
	}
}

// payload is bytes that tell whose they are.
func payload(n, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(n*31 + 7)
	}
	return b
}

// digests of the names.
var (
	exchangeOrTopicDigest [places]uint64
	destDigest            [2][places][dests]uint64 // RabbitMQ's, Kafka's
)

func init() {
	for u := range places {
		exchangeOrTopicDigest[u] = sink.ExchangeOrTopicOf(unitName(u))
		for r := range dests {
			destDigest[0][u][r] = sink.DestOfPair(exchangeOrTopicDigest[u], keyName(r))
			destDigest[1][u][r] = sink.DestOfPartition(exchangeOrTopicDigest[u], int32(r))
		}
	}
}
