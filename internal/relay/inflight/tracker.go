// The tracker: which transactions have unsettled events, and the watermark that follows from that.
// After a position was reported to the slot, the server need not send again what is before it. So
// the watermark must not pass an unsettled event.

package inflight

import (
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Commit is a transaction that has unsettled events, or that is still open. What follows it in the
// stream and has no unsettled event (a transaction that settled earlier, an empty one, a keepalive)
// is merged into it. So the list of commits is never longer than the number of unsettled events
// plus one, even with a stalled lane or a busy table that is not relayed.
type Commit struct {
	lsn pglogrepl.LSN // of the commit record
	end pglogrepl.LSN // the watermark once this commit is settled; raised by what is merged into it
	// the end of the newest transaction with events, of this one and those merged into it
	own  pglogrepl.LSN
	time time.Time

	closed   bool // Tracker.Close was called
	admitted int  // its events in the line; known when closed
	settled  int  // of those, the settled ones
	merged   int  // settled events of the commits merged into it

	prev, next *Commit // next is also the link of the free list
}

// Tracker is the list of commits in the order of the stream. Only the last one can be open.
//
// Why the watermark never passes an unsettled event: it moves in moveWatermark alone. moveWatermark
// is called in two cases: with the end of the first commit once that commit is closed and settled,
// and with a position that was received while the list was empty. A commit behind an unsettled one
// never reaches it: the commit hands its end to the commit before it and leaves the list. And
// moveWatermark itself panics at a position behind the first commit of the list.
type Tracker struct {
	mu         sync.Mutex
	head, tail *Commit
	free       *Commit

	watermark event.Watermark
	moved     chan struct{} // cap 1: the watermark has moved
	settled   uint64        // events, in all
	covered   uint64        // of those, the ones below the watermark
}

// NewTracker makes a tracker whose first watermark is start.
func NewTracker(start pglogrepl.LSN) *Tracker {
	return &Tracker{watermark: event.Watermark{LSN: start}, moved: make(chan struct{}, 1)}
}

// Open appends the transaction that begins. The reader calls it with the first event of the
// transaction that it admits.
func (t *Tracker) Open(lsn pglogrepl.LSN, at time.Time) *Commit {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.free
	if c == nil {
		c = new(Commit)
	} else {
		t.free = c.next
	}
	*c = Commit{lsn: lsn, time: at, prev: t.tail}
	if t.tail == nil {
		t.head = c
	} else {
		t.tail.next = c
	}
	t.tail = c
	return c
}

// Close notes that c has ended at end, and how many of its events were admitted to the line.
func (t *Tracker) Close(c *Commit, end pglogrepl.LSN, admitted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.closed, c.end, c.own, c.admitted = true, end, end, admitted
	t.removeSettled(c)
}

// Pass takes a position before which no transaction of ours is open: that of a keepalive, or the
// end of a transaction of which no event was admitted.
func (t *Tracker) Pass(pos pglogrepl.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.tail == nil:
		t.moveWatermark(pos, t.watermark.Own)
	case t.tail.closed:
		t.tail.end = max(t.tail.end, pos)
	}
}

// Settle counts events that are durable now: at the broker, or as rows of our tables.
func (t *Tracker) Settle(items []*Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled += uint64(len(items))
	for _, it := range items {
		it.commit.settled++
		t.removeSettled(it.commit)
	}
}

// removeSettled removes c from the list if it is settled. The first commit of the list moves the
// watermark; any other hands its end to the commit before it. So no settled commit stays in the
// list, and no other commit needs a check after the first one has left.
func (t *Tracker) removeSettled(c *Commit) {
	if !c.closed || c.settled != c.admitted {
		return
	}
	if c.next == nil {
		t.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	if c.prev == nil {
		t.head = c.next
		t.covered += uint64(c.settled + c.merged)
		t.moveWatermark(c.end, c.own)
	} else {
		p := c.prev
		p.next = c.next
		p.end, p.own = max(p.end, c.end), max(p.own, c.own)
		p.merged += c.settled + c.merged
	}
	*c = Commit{next: t.free}
	t.free = c
}

// moveWatermark is the only place where the watermark moves. It only rises. A position behind a
// commit that is not settled would lose events once it is reported, so it panics.
func (t *Tracker) moveWatermark(lsn, own pglogrepl.LSN) {
	if t.head != nil && lsn > t.head.lsn {
		panic(fmt.Sprintf("inflight: watermark %s would pass the unsettled commit %s", lsn, t.head.lsn))
	}
	if lsn <= t.watermark.LSN && own <= t.watermark.Own {
		return
	}
	t.watermark = event.Watermark{LSN: max(lsn, t.watermark.LSN), Own: max(own, t.watermark.Own)}
	select {
	case t.moved <- struct{}{}:
	default:
	}
}

// Watermark is the position below which every event is settled, as of the last move.
func (t *Tracker) Watermark() event.Watermark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watermark
}

// Moved delivers after the watermark moved; several moves may be one signal.
func (t *Tracker) Moved() <-chan struct{} { return t.moved }

// SettledAbove returns how many settled events are above the watermark, and the commit time of the
// oldest transaction with an unsettled event, or zero if there is none.
func (t *Tracker) SettledAbove() (settled uint64, oldest time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head != nil {
		oldest = t.head.time
	}
	return t.settled - t.covered, oldest
}
