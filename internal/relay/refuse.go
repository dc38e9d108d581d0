package relay

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// refuse does what a rejection asks for (invariant I4): a destination is paused and its event parked, an event that may pass
// later is parked too, one that never will goes to the dead letters.
func (ln *lane) refuse(it *item, f *sink.Fault, now time.Time) {
	if it.attempts == 0 {
		it.since = now
	}
	it.attempts++
	if hook := ln.line.cfg.Hooks.Rejected; hook != nil {
		hook(&it.ev, f, it.attempts)
	}
	switch f.Class {
	case sink.Destination:
		if it.fed == nil || !it.fed.Replay { // a letter goes where an operator said, perhaps nothing else ever does
			ln.line.gates.shut(it.place, f)
		}
	case sink.Transient:
		ln.line.gates.watch(it.place.Dest)
	case sink.Permanent:
	}
	if it.fed != nil {
		ln.rowBack(it, sink.Outcome{State: sink.Rejected, Fault: f})
		return
	}
	it.parked = Parked{Fault: f, Attempts: it.attempts, Since: it.since}
	c := ln.chains[it.chain]
	switch {
	case c != nil && c.front != it && (c.late || c.dying):
		// Not ordering Key, and refused in the same call as an earlier one that waits: it waits behind that, and this was no attempt.
		it.state, it.attempts = sink.Unsent, 0
		ln.tellFailed()
		return
	case f.Class == sink.Destination:
		it.parked.Attempts = 0 // none is spent
		ln.park(it)
	case f.Class == sink.Permanent && !ln.line.cfg.Hold:
		ln.bury(it, f)
		return
	case it.chain != 0 && !ln.holds.add(it.chain, it.place.Unit, 1):
		ln.offerLater(it, now)
		ln.tellFailed()
		return
	default:
		it.parked.Dead = f.Class == sink.Permanent
		ln.give(it)
	}
	if c != nil {
		c.release(it)
		ln.advance(c)
	}
}

func (ln *lane) tellFailed() {
	if hook := ln.line.cfg.Hooks.Failed; hook != nil {
		hook(1)
	}
}

// park counts an event and gives it to the writer. It always finds room: what can not be counted by its chain is counted
// with its unit, which is as much as pausing the whole of it.
func (ln *lane) park(it *item) {
	if it.chain != 0 && !ln.holds.add(it.chain, it.place.Unit, 1) {
		ln.holds.whole(it.place.Unit, 1)
		ln.flush = append(ln.flush, it.place.Unit)
		ln.line.log.Info("more chains are held than retry.max_held_keys: everything for this exchange or topic goes through the retry table",
			zap.Int("lane", ln.n), zap.String("destination", string(ln.line.cfg.Sink.Route(&it.ev).Name)))
	}
	ln.give(it)
}

// bury gives an event to the dead letters. Its chain waits until the row is committed, and goes on then.
func (ln *lane) bury(it *item, f *sink.Fault) {
	if it.parked.Fault == nil {
		it.parked = Parked{Fault: f, Attempts: 1, Since: time.Now()}
	}
	it.parked.Dead = true
	ln.give(it)
	if it.chain != 0 {
		c := ln.chain(it)
		c.release(it)
		ln.mark(&c.dying, true)
	}
}

// give puts an event on the way to the writer.
func (ln *lane) give(it *item) {
	it.parked.Event, it.parked.Place, it.parked.Chain, it.parked.item = &it.ev, it.place, it.chain, it
	ln.parked = append(ln.parked, &it.parked)
}

// late is a chain whose first event is to be offered again.
type late struct {
	chain uint64
	due   time.Time
}

// offerLater keeps an event that is at fault itself, while there is no room to hold its chain: the chain waits in memory,
// others go on.
func (ln *lane) offerLater(it *item, now time.Time) {
	c := ln.chain(it)
	c.release(it)
	c.waiting.pushFront(it)
	ln.mark(&c.late, true)
	l := late{it.chain, now.Add(ln.line.cfg.Retry.after(it.attempts - 1))}
	at, _ := slices.BinarySearchFunc(ln.late, l, func(x, y late) int { return x.due.Compare(y.due) })
	ln.late = slices.Insert(ln.late, at, l)
}

// offerAgain lets the late ones go that are due.
func (ln *lane) offerAgain() {
	for now := time.Now(); len(ln.late) > 0 && !ln.late[0].due.After(now); {
		c := ln.chains[ln.late[0].chain]
		ln.late = ln.late[1:]
		ln.mark(&c.late, false)
		ln.advance(c)
	}
}

// mark sets one of a chain's flags that pick has to look at.
func (ln *lane) mark(flag *bool, to bool) {
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
