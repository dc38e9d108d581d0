// What follows from a rejection, by its class (I4).

package relay

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// refuse handles a rejection (invariant I4): a faulty destination is paused and its event deferred;
// an event that may pass later is deferred too; one that never will is dead-lettered.
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
		// a replayed dead letter goes where an operator said, and perhaps nothing else does
		if it.fed == nil || !it.fed.Replay {
			ln.line.pauses.pause(it.place, f)
		}
	case sink.Transient:
		ln.line.pauses.watch(it.place.Dest)
	case sink.Permanent:
	}
	if it.fed != nil {
		ln.rowBack(it, sink.Outcome{State: sink.Rejected, Fault: f})
		return
	}
	it.deferred = Deferred{Fault: f, Attempts: it.attempts, Since: it.since}
	c := ln.groups[it.group]
	switch {
	case c != nil && c.front != it && (c.late || c.dying):
		// Not ordering Key, and rejected in the same call as an earlier one that waits: it waits
		// behind that one, and no attempt is spent.
		it.state, it.attempts = sink.Unsent, 0
		ln.reportFailed()
		return
	case f.Class == sink.Destination:
		it.deferred.Attempts = 0 // no attempt is spent
		ln.deferRow(it)
	case f.Class == sink.Permanent && !ln.line.cfg.Block:
		ln.toDeadLetter(it, f)
		return
	case it.group != 0 && !ln.waiting.add(it.group, it.place.ExchangeOrTopic, 1):
		ln.offerLater(it, now)
		ln.reportFailed()
		return
	default:
		it.deferred.Dead = f.Class == sink.Permanent
		ln.give(it)
	}
	if c != nil {
		c.release(it)
		ln.advance(c)
	}
}

func (ln *lane) reportFailed() {
	if hook := ln.line.cfg.Hooks.Failed; hook != nil {
		hook(1)
	}
}

// late is an ordering group whose first event is to be offered again.
type late struct {
	group uint64
	due   time.Time
}

// offerLater keeps an event with a fault of its own, while there is no room to count its ordering
// group: the ordering group waits in memory, others go on.
func (ln *lane) offerLater(it *item, now time.Time) {
	c := ln.group(it)
	c.release(it)
	c.waiting.pushFront(it)
	ln.setFlag(&c.late, true)
	l := late{it.group, now.Add(ln.line.cfg.Retry.after(it.attempts - 1))}
	at, _ := slices.BinarySearchFunc(ln.late, l, func(x, y late) int { return x.due.Compare(y.due) })
	ln.late = slices.Insert(ln.late, at, l)
}

// offerAgain readies the late ones that are due.
func (ln *lane) offerAgain() {
	for now := time.Now(); len(ln.late) > 0 && !ln.late[0].due.After(now); {
		c := ln.groups[ln.late[0].group]
		ln.late = ln.late[1:]
		ln.setFlag(&c.late, false)
		ln.advance(c)
	}
}

// Backoff is a waiting time that starts at Min and doubles to Max, with a jitter of a fifth either
// way.
type Backoff struct{ Min, Max time.Duration }

// after is the wait after n failures in a row (from 0).
func (b Backoff) after(n int) time.Duration {
	d := b.Max
	// 32 doublings exceed any sensible maximum, and do not overflow
	if n < 32 && b.Min<<n < b.Max {
		d = b.Min << n
	}
	return d - d/5 + rand.N(2*d/5+1)
}

// spin is the wait after calls that fail at once, so that a sink that does not wait itself is not
// called in a busy loop.
var spin = Backoff{Min: 50 * time.Millisecond, Max: time.Second}
