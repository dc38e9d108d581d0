// What follows from a rejection, by its class (I4).

package relay

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// reject handles a rejection (invariant I4). A faulty destination is paused, and its event is
// deferred. An event that may be accepted later is deferred too. An event that never will be
// accepted is dead-lettered.
func (ln *lane) reject(it *item, f *sink.Fault, now time.Time) {
	if it.attempts == 0 {
		it.since = now
	}
	it.attempts++
	if hook := ln.line.cfg.Hooks.Rejected; hook != nil {
		hook(&it.ev, f, it.attempts)
	}
	switch f.Class {
	case sink.Destination:
		// a replayed dead letter goes where an operator sent it, perhaps as the only event
		if it.fed == nil || !it.fed.Replay {
			ln.line.pauses.pause(it.place, f)
		}
	case sink.Transient:
		ln.line.pauses.watch(it.place.Dest)
	case sink.Permanent:
	}
	if it.fed != nil {
		ln.returnRow(it, sink.Outcome{State: sink.Rejected, Fault: f})
		return
	}
	it.deferred = Deferred{Fault: f, Attempts: it.attempts, Since: it.since}
	g := ln.groups[it.group]
	switch {
	case g != nil && g.front != it && (g.late || g.dying):
		// The ordering is not Key, and an earlier event that was rejected in the same call waits:
		// this event waits behind it, and no attempt is spent.
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
		ln.giveToWriter(it)
	}
	if g != nil {
		g.release(it)
		ln.advance(g)
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

// offerLater keeps an event with a fault of its own in memory, because there is no room to count
// its ordering group. The ordering group waits, others go on.
func (ln *lane) offerLater(it *item, now time.Time) {
	g := ln.group(it)
	g.release(it)
	g.waiting.pushFront(it)
	ln.setFlag(&g.late, true)
	l := late{it.group, now.Add(ln.line.cfg.Retry.after(it.attempts - 1))}
	at, _ := slices.BinarySearchFunc(ln.late, l, func(x, y late) int { return x.due.Compare(y.due) })
	ln.late = slices.Insert(ln.late, at, l)
}

// offerAgain advances the late ordering groups that are due.
func (ln *lane) offerAgain() {
	for now := time.Now(); len(ln.late) > 0 && !ln.late[0].due.After(now); {
		g := ln.groups[ln.late[0].group]
		ln.late = ln.late[1:]
		ln.setFlag(&g.late, false)
		ln.advance(g)
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

// spin is the wait after calls that fail at once. It prevents a busy loop over a sink that does not
// wait itself.
var spin = Backoff{Min: 50 * time.Millisecond, Max: time.Second}
