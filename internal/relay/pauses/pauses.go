// Package pauses is the registry of paused destinations: what rejected what was sent to it last,
// why, and when a probe may find out whether it accepts again. The lanes of a line share it. It has
// no goroutine and no clock: times are arguments.
package pauses

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Target is what can be paused: a whole exchange or topic (Dest 0), or one destination.
type Target struct{ ExchangeOrTopic, Dest uint64 }

// Config is the configuration of a Registry.
type Config struct {
	// MaxAge is destination_max_age: a row becomes a dead letter after more continuous refusal; 0:
	// never.
	MaxAge time.Duration
	// MaxBackoff is the longest wait between two attempts of an event that is itself at fault; 0:
	// the attempts of one are not spent by MaxAge.
	MaxBackoff time.Duration
	// OfDest: only a confirm at the same destination shows that an event is itself at fault. Set it
	// where the destinations of a topic may fail one by one without being blamed: Kafka's
	// partitions are on several brokers.
	OfDest bool
	// Jitter draws a duration between 0 and its argument; nil: it is 0.
	Jitter func(time.Duration) time.Duration
	// Began and Ended report a pause, for the log; nil ones are skipped. forgotten: nothing is left
	// to probe the destination with. They are called while the registry is locked.
	Began func(p sink.Paused)
	Ended func(p sink.Paused, forgotten bool, now time.Time)
}

// maxPauses bounds the number of pauses, and maxBytes that of their texts: names may be made from
// data, and a long one of control characters is shown four times as long. Beyond it an event is
// sent, rejected and deferred. Half of both is kept for what brokers refuse: without that, forged
// names that are not allowed would take them all, and each of them costs the broker nothing.
const (
	maxPauses = 10_000
	maxBytes  = 4 << 20
)

// Registry has the paused destinations. A pause only saves useless sends: what keeps the order is
// the order machine. So a pause may begin late, or be forgotten: in a restart, or when no row is
// left for the destination. Otherwise only the confirm of a row (a probe) ends a pause. The confirm
// of a new event does not: that event may have been on the wire before the destination broke. A
// pause of a whole exchange or topic also ends when the broker blames only one of its pairs or
// partitions. One that is held ends by an operator's request alone: a new leader is told of it
// again (retry.Table.Load).
type Registry struct {
	cfg     Config
	count   atomic.Int32 // how many pauses there are: zero saves the lanes the lock
	version atomic.Uint64
	held    atomic.Bool // the disk guard is on

	mu     sync.Mutex
	paused map[Target]*entry
	bytes  int // of their texts
	// how many ordering groups the lanes have at rest behind a target. It outlives a pause: a lane
	// may not have noticed its end when the next one begins.
	resting map[Target]int
	watched watched
	turn    time.Time // the last that was taken; see Turn
}

// entry is one pause.
type entry struct {
	sink.Paused
	fault   *sink.Fault
	refusal refusal
	nacks   time.Duration // how long each rejection has been a nack
	asked   bool          // of a held one: an operator has asked for a retry since the last refusal
	probe
}

// isHeld reports whether an operator decides when the pause ends: sink.Fault.Held. Nothing else
// ends it then: no confirm, for what it is about was sent before or by a replay, no other refusal,
// and no probe goes.
func (e *entry) isHeld() bool { return e.Fix != "" && !e.asked }

// Refused takes a rejection that blames the destination: its pause begins, or goes on. A fault of
// the pair or partition shows that the exchange or topic itself answers, so a pause of the exchange
// or topic ends; ended says whether one did. What is not allowed shows nothing: the relay itself
// refused it. So a forged routing key does not end the pause of an exchange that is away. Beyond
// maxPauses no pause begins. Then nothing is known of the destination, and its rows wait for their
// time without a limit.
func (r *Registry) Refused(p sink.Place, f *sink.Fault, now time.Time) (ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := Target{p.ExchangeOrTopic, p.Dest}
	if f.Whole {
		t.Dest = 0
	} else if e := r.paused[t.whole()]; e != nil && f.Reason != sink.NotAllowed && !e.isHeld() {
		ended = r.end(t.whole(), false, now)
	}
	most, bytes := maxPauses, maxBytes
	if f.Reason == sink.NotAllowed {
		most, bytes = most/2, bytes/2
	}
	if e := r.paused[t]; e != nil {
		r.refusedAgain(e, f, now)
	} else if len(r.paused) < most && r.bytes < bytes {
		r.begin(t, f, now)
	}
	return ended
}

func (r *Registry) begin(t Target, f *sink.Fault, now time.Time) {
	e := &entry{
		Paused: sink.Paused{Destination: f.Destination, Reason: f.Reason, Text: f.Text, Since: now, Fix: f.Held},
		fault:  f, refusal: begun(now), probe: probe{wait: minProbe},
	}
	r.paused[t] = e
	r.bytes += len(e.Destination) + len(e.Text)
	r.count.Store(int32(len(r.paused)))
	r.schedule(e, now)
	if r.cfg.Began != nil {
		r.cfg.Began(e.Paused)
	}
}

func (r *Registry) refusedAgain(e *entry, f *sink.Fault, now time.Time) {
	counted := e.refusal.again(now, e.gap)
	switch {
	case e.isHeld():
		return
	case f.Reason != sink.Nacked:
		e.nacks = 0
	case e.Reason == sink.Nacked:
		e.nacks += counted
	}
	r.bytes += len(f.Text) - len(e.Text)
	e.fault, e.Reason, e.Text, e.Fix, e.asked = f, f.Reason, f.Text, f.Held, false
	if e.isHeld() && r.cfg.Began != nil {
		r.cfg.Began(e.Paused)
	}
}

// Confirmed takes a confirm. That of a row ends the pause of its place; ended says whether it did.
// That of a new event, which was on the wire before the pause began, ends none. But the refusal was
// not continuous: it counts from this confirm.
func (r *Registry) Confirmed(p sink.Place, row bool, now time.Time) (ended bool) {
	r.confirmedAnywhere(p, now)
	if !r.Any() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	dest := Target{p.ExchangeOrTopic, p.Dest}
	for _, t := range [2]Target{dest.whole(), dest} {
		switch e := r.paused[t]; {
		case e == nil:
		case row && !e.isHeld():
			ended = r.end(t, false, now) || ended
		default:
			e.refusal, e.nacks, e.wait = begun(now), 0, minProbe
		}
	}
	return ended
}

// Forget ends the pause of a target when nothing is left to probe it with. The next event finds out
// whether it accepts again.
func (r *Registry) Forget(t Target, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(t, true, now)
}

func (r *Registry) end(t Target, forgotten bool, now time.Time) bool {
	e := r.paused[t]
	if e == nil {
		return false
	}
	delete(r.paused, t)
	r.bytes -= len(e.Destination) + len(e.Text)
	r.count.Store(int32(len(r.paused)))
	r.version.Add(1)
	if r.cfg.Ended != nil {
		r.cfg.Ended(e.Paused, forgotten, now)
	}
	return true
}
