// What a lane knows of one chain, and the ways of an event to the writer.

package relay

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// chain is what a lane has in memory of a chain, beside the events in ready and open. It exists
// while any of it is set.
type chain struct {
	id, unit uint64

	// front is the one new event of the chain that is in ready or open: ordering Key only. What
	// comes later is waiting.
	front *item
	// dying is a new event on its way to the dead letters (on_dead_letter: continue). It counts as on the
	// wire until its row is committed: else a crash in between would send it again behind its
	// followers, and once more to the dead letters.
	dying bool
	// rows of the chain are in open, or one letter that is replayed. New events wait for their
	// outcomes.
	rows   int
	replay bool
	// late: the first of waiting was refused for a fault of its own while there was no room to hold
	// the chain. It is offered again when the lane says so.
	late bool
	// awaited: a letter is to be replayed, and goes when front is settled. A key that never rests
	// would never let it.
	awaited bool

	waiting fifo // new events, in order

	next *chain // in the lane's free list
}

// chain finds the state of a chain, or makes it.
func (ln *lane) chain(it *item) *chain {
	c := ln.chains[it.chain]
	if c == nil {
		if c = ln.spare; c == nil {
			c = new(chain)
		} else {
			ln.spare = c.next
		}
		*c = chain{id: it.chain, unit: it.place.Unit}
		ln.chains[it.chain] = c
	}
	return c
}

// forget forgets a chain that nothing is to be known of any more.
func (ln *lane) forget(c *chain) {
	if c.front == nil && !c.dying && c.rows == 0 && !c.awaited && c.waiting.first == nil {
		delete(ln.chains, c.id)
		c.next, ln.spare = ln.spare, c
	}
}

// release takes the event from the front.
func (c *chain) release(it *item) {
	if c.front == it {
		c.front = nil
	}
}

// park counts an event and gives it to the writer. It always finds room: what can not be counted by
// its chain is counted with its unit, which is as much as pausing the whole of it.
func (ln *lane) park(it *item) {
	if it.chain != 0 && !ln.waiting.add(it.chain, it.place.Unit, 1) {
		ln.waiting.whole(it.place.Unit, 1)
		ln.flush = append(ln.flush, it.place.Unit)
		ln.line.log.Info("too many keys wait to be counted one by one: all events for this exchange or topic go through the retry table",
			zap.Int("lane", ln.n), zap.String("destination", string(ln.line.cfg.Sink.Route(&it.ev).Name)))
	}
	ln.give(it)
}

// bury gives an event to the dead letters. Its chain waits until the row is committed, and goes on
// then.
func (ln *lane) bury(it *item, f *sink.Fault) {
	if it.parked.Fault == nil {
		it.parked = Parked{Fault: f, Attempts: 1, Since: time.Now()}
	}
	it.parked.Dead = true
	ln.give(it)
	if it.chain != 0 {
		c := ln.chain(it)
		c.release(it)
		ln.setFlag(&c.dying, true)
	}
}

// give puts an event on the way to the writer.
func (ln *lane) give(it *item) {
	it.parked.Event, it.parked.Place, it.parked.Chain, it.parked.item = &it.ev, it.place, it.chain, it
	ln.parked = append(ln.parked, &it.parked)
}

// setFlag sets one of a chain's flags that pick has to look at.
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
