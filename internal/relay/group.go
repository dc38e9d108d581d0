// What a lane knows of one ordering group, and how an event gets to the retry writer.

package relay

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// group is what a lane has in memory of an ordering group, in addition to the events in ready and
// open. It exists while any of its fields is set.
type group struct {
	id, exchangeOrTopic uint64

	// front is the one new event of the ordering group that is in ready or open: ordering Key only.
	// What comes later is waiting.
	front *item
	// dying is a new event on its way to the dead letters (on_dead_letter: continue). It counts as
	// on the wire until its row is committed: otherwise a crash in between would send it again
	// behind its later events, and dead-letter it once more.
	dying bool
	// rows of the ordering group are in open, or one dead letter that is replayed. New events wait
	// for their outcomes.
	rows   int
	replay bool
	// late: the first of waiting was rejected for a fault of its own while there was no room to
	// count the ordering group. The lane offers it again when it is due.
	late bool
	// awaited: a dead letter is to be replayed, and goes when front is settled. Without this a key
	// that is always busy would never let it go.
	awaited bool

	waiting fifo // new events, in order

	next *group // in the lane's free list
}

// group returns the state of an ordering group, and makes it at first.
func (ln *lane) group(it *item) *group {
	c := ln.groups[it.group]
	if c == nil {
		if c = ln.spare; c == nil {
			c = new(group)
		} else {
			ln.spare = c.next
		}
		*c = group{id: it.group, exchangeOrTopic: it.place.ExchangeOrTopic}
		ln.groups[it.group] = c
	}
	return c
}

// forget drops the state of an ordering group in which nothing is set.
func (ln *lane) forget(c *group) {
	if c.front == nil && !c.dying && c.rows == 0 && !c.awaited && c.waiting.first == nil {
		delete(ln.groups, c.id)
		c.next, ln.spare = ln.spare, c
	}
}

// release takes the event from the front.
func (c *group) release(it *item) {
	if c.front == it {
		c.front = nil
	}
}

// deferRow counts an event and gives it to the writer. It always finds room: what cannot be counted
// by its ordering group is counted with its exchange or topic, which amounts to pausing the whole
// of that.
func (ln *lane) deferRow(it *item) {
	if it.group != 0 && !ln.waiting.add(it.group, it.place.ExchangeOrTopic, 1) {
		ln.waiting.countWhole(it.place.ExchangeOrTopic, 1)
		ln.flush = append(ln.flush, it.place.ExchangeOrTopic)
		ln.line.log.Info("too many waiting keys to count one by one: all events for this exchange or topic go through the retry table",
			zap.Int("lane", ln.n), zap.String("destination", string(ln.line.cfg.Sink.Route(&it.ev).Name)))
	}
	ln.give(it)
}

// toDeadLetter dead-letters an event. Its ordering group waits until the row is committed, and goes
// on then.
func (ln *lane) toDeadLetter(it *item, f *sink.Fault) {
	if it.deferred.Fault == nil {
		it.deferred = Deferred{Fault: f, Attempts: 1, Since: time.Now()}
	}
	it.deferred.Dead = true
	ln.give(it)
	if it.group != 0 {
		c := ln.group(it)
		c.release(it)
		ln.setFlag(&c.dying, true)
	}
}

// give queues an event for the writer.
func (ln *lane) give(it *item) {
	it.deferred.Event, it.deferred.Place, it.deferred.Group, it.deferred.item = &it.ev, it.place, it.group, it
	ln.deferred = append(ln.deferred, &it.deferred)
}

// setFlag sets a flag of an ordering group, and counts the flags that are set (nothingWaits needs
// that).
func (ln *lane) setFlag(flag *bool, to bool) {
	if *flag == to {
		return
	}
	*flag = to
	if to {
		ln.special++
	} else {
		ln.special--
	}
}
