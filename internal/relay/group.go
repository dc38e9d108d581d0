// What a lane knows about one ordering group, and how an event gets to the retry writer.

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

	// front is the one new event of the ordering group that is in ready or open. It is set with
	// ordering Key only. Later events are in waiting.
	front *item
	// dying is set while a new event is on its way to the dead letters (on_dead_letter: continue).
	// The event counts as on the wire until its row is committed. Otherwise the later events would
	// be sent first, and after a crash in between the event would be sent again behind them, and
	// dead-lettered once more.
	dying bool
	// rows counts the rows of the ordering group in open, or one that goes alone: a row sent apart,
	// or a dead letter that is replayed. New events wait for their outcomes.
	rows  int
	alone bool
	// late is set when the first event of waiting was rejected for a fault of its own while there
	// was no room to count the ordering group. The lane offers that event again when it is due.
	late bool
	// awaited is set when a dead letter is to be replayed as soon as front is settled. Without this
	// flag a key that is always busy would delay the replay for ever.
	awaited bool

	waiting fifo // new events, in order

	next *group // in the lane's free list
}

// group returns the state of an ordering group. It creates the state if there is none.
func (ln *lane) group(it *item) *group {
	g := ln.groups[it.group]
	if g == nil {
		if g = ln.spare; g == nil {
			g = new(group)
		} else {
			ln.spare = g.next
		}
		*g = group{id: it.group, exchangeOrTopic: it.place.ExchangeOrTopic}
		ln.groups[it.group] = g
	}
	return g
}

// forget drops the state of an ordering group in which nothing is set.
func (ln *lane) forget(g *group) {
	if g.front == nil && !g.dying && g.rows == 0 && !g.awaited && g.waiting.first == nil {
		delete(ln.groups, g.id)
		g.next, ln.spare = ln.spare, g
	}
}

// release clears front if it is the event.
func (g *group) release(it *item) {
	if g.front == it {
		g.front = nil
	}
}

// deferRow counts an event and gives it to the writer. It always finds room: an event that cannot
// be counted by its ordering group is counted with its exchange or topic. That has the effect of
// pausing the whole exchange or topic.
func (ln *lane) deferRow(it *item) {
	if it.group != 0 && !ln.waiting.add(it.group, it.place.ExchangeOrTopic, 1) {
		ln.waiting.countWhole(it.place.ExchangeOrTopic, 1)
		ln.flush = append(ln.flush, it.place.ExchangeOrTopic)
		ln.line.log.Info("too many waiting keys to count one by one: all events for this exchange or topic go through the retry table",
			zap.Int("lane", ln.n), zap.String("destination", string(ln.line.cfg.Sink.Route(&it.ev).Name)))
	}
	ln.giveToWriter(it)
}

// toDeadLetter dead-letters an event. The ordering group waits until the row is committed, and goes
// on then.
func (ln *lane) toDeadLetter(it *item, f *sink.Fault) {
	if it.deferred.Fault == nil {
		it.deferred = Deferred{Fault: f, Attempts: 1, Since: time.Now()}
	}
	it.deferred.Dead = true
	ln.giveToWriter(it)
	if it.group != 0 {
		g := ln.group(it)
		g.release(it)
		ln.setFlag(&g.dying, true)
	}
}

// giveToWriter queues an event for the writer.
func (ln *lane) giveToWriter(it *item) {
	it.deferred.Event, it.deferred.Place, it.deferred.Group, it.deferred.item = &it.ev, it.place, it.group, it
	ln.deferred = append(ln.deferred, &it.deferred)
}

// setFlag sets a flag of an ordering group, and counts the flags that are set: nothingWaits needs
// the count.
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
