// The registry of paused destinations: what rejected the events that were sent to it last, why, and
// for how long. All lanes of a line share it, so one lane's rejection saves the others useless
// sends. It has no goroutine and no clock: times are arguments.

package order

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Target is what can be paused: a whole exchange or topic (Dest 0), or one destination.
type Target struct{ ExchangeOrTopic, Dest uint64 }

// PausesConfig is the configuration of the registry.
type PausesConfig struct {
	// MaxAge is destination_max_age: a row whose destination has refused without a break for longer
	// becomes a dead letter; 0 means that none does.
	MaxAge time.Duration
	// MaxBackoff is the longest wait between two attempts of an event that is itself at fault.
	// AttemptsSpent counts no more than that between two rejections, so with 0 attempts are never
	// spent by MaxAge.
	MaxBackoff time.Duration
	// OfDest means that only a confirm at the same destination shows that an event is itself at
	// fault. It is set where the destinations of a topic may fail one by one without being blamed:
	// Kafka's partitions are on several brokers.
	OfDest bool
	// Jitter draws a duration between 0 and its argument; nil means that it is always 0.
	Jitter func(time.Duration) time.Duration
	// Began and Ended log a pause; a nil function is not called. forgotten means that nothing is
	// left to probe the destination with. They are called while the registry is locked.
	Began func(p sink.Paused)
	Ended func(p sink.Paused, forgotten bool, now time.Time)
}

// maxPauses bounds the number of pauses, and maxPauseBytes the bytes of their texts: names may be
// made from data, and a long name of control characters is shown four times as long. Beyond these
// bounds an event is sent, rejected and deferred. Half of both is kept for what brokers refuse.
// Without that, forged names that are not allowed would take all pauses, and each of them costs the
// broker nothing (TestForgedNamesLeaveRoom).
const (
	maxPauses     = 10_000
	maxPauseBytes = 4 << 20
)

// Pauses has the paused destinations. A pause only saves useless sends: what keeps the order is the
// order machine. So a pause may begin late, or be forgotten: in a restart, or when no row is left
// for the destination. Otherwise only the confirm of a row (a probe) ends a pause. The confirm of a
// new event does not: that event may have been on the wire before the destination broke. A pause of
// a whole exchange or topic also ends when the broker blames only one of its pairs or partitions. A
// pause that is held (isHeld) sends no probe, and so goes on until an operator requests a retry. A
// new leader is told of a held pause again (retry.Table.Load).
type Pauses struct {
	cfg     PausesConfig
	count   atomic.Int32  // how many pauses there are: zero saves the lanes the lock
	version atomic.Uint64 // how many pauses have ended
	guarded atomic.Bool   // the disk guard is on

	mu     sync.Mutex
	paused map[Target]*pause
	bytes  int // of the names and texts in paused, at most maxPauseBytes and one text
	// resting is how many ordering groups the lanes have at rest behind a target. It outlives a
	// pause: a lane may not have noticed its end when the next one begins (TestRestOutlivesAPause).
	resting  map[Target]int
	watched  watched
	lastTurn time.Time // the time of the last turn that was taken; see NextTurn
}

// pause is one paused target, and what its rejections have shown so far.
type pause struct {
	sink.Paused
	fault   *sink.Fault
	refusal refusal
	nacks   time.Duration // for how long there was nothing but nacks
	// retryAsked means that an operator has asked for a retry since the last refusal. Only a held
	// pause needs to know.
	retryAsked bool
	probeTimes
}

// isHeld reports whether an operator decides when the pause ends: sink.Fault.Held. Nothing else
// ends it then: no confirm, for what it is about was sent before or by a replay, no other refusal,
// and no probe goes.
func (e *pause) isHeld() bool { return e.Fix != "" && !e.retryAsked }

// NewPauses makes a registry.
func NewPauses(cfg PausesConfig) *Pauses {
	if cfg.Jitter == nil {
		cfg.Jitter = func(time.Duration) time.Duration { return 0 }
	}
	return &Pauses{cfg: cfg, paused: map[Target]*pause{}, resting: map[Target]int{}}
}

// AnyPaused reports whether anything is paused.
func (r *Pauses) AnyPaused() bool { return r.count.Load() > 0 }

// SetGuard notes whether the disk guard is on: while it is on nothing is sent.
func (r *Pauses) SetGuard(on bool) { r.guarded.Store(on) }

// GuardIsOn reports whether the disk guard is on: then there is no use in looking for rows that may
// go.
func (r *Pauses) GuardIsOn() bool { return r.guarded.Load() }

// Version changes with each pause that ends. By it a lane notices that groups may have rested long
// enough.
func (r *Pauses) Version() uint64 { return r.version.Load() }

// Paused reports whether the place, or its whole exchange or topic, is paused.
func (r *Pauses) Paused(p sink.Place) bool {
	_, is := r.Target(p)
	return is
}

// Target is the paused target that a place belongs to: its whole exchange or topic, or else its
// destination. is reports whether one of the two is paused.
func (r *Pauses) Target(p sink.Place) (t Target, is bool) {
	if !r.AnyPaused() {
		return Target{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t, e := r.pauseOf(p)
	return t, e != nil
}

// pauseOf is Target with the pause; nil means that the place is not paused. The registry is locked.
func (r *Pauses) pauseOf(p sink.Place) (Target, *pause) {
	dest := Target{p.ExchangeOrTopic, p.Dest}
	if e := r.paused[dest.exchangeOrTopic()]; e != nil {
		return dest.exchangeOrTopic(), e
	}
	return dest, r.paused[dest]
}

// IsPaused reports whether a target is paused.
func (r *Pauses) IsPaused(t Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused[t] != nil
}

// Fault is the last rejection of the place; nil means that the place is not paused.
func (r *Pauses) Fault(p sink.Place) *sink.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, e := r.pauseOf(p); e != nil {
		return e.fault
	}
	return nil
}

// List is what is paused, for status and metrics, the longest first.
func (r *Pauses) List() []sink.Paused {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]sink.Paused, 0, len(r.paused))
	for t, e := range r.paused {
		p := e.Paused
		p.Place = sink.Place{ExchangeOrTopic: t.ExchangeOrTopic, Dest: t.Dest}
		if !e.out && !e.isHeld() && !r.covered(t) {
			p.NextProbe = e.at
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b sink.Paused) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Destination, b.Destination))
	})
	return out
}

// covered reports whether the whole exchange or topic of a destination is paused. The destination
// itself is not probed then: probes first find out about the exchange or topic.
func (r *Pauses) covered(t Target) bool { return t.Dest != 0 && r.paused[t.exchangeOrTopic()] != nil }

// exchangeOrTopic is the target that is the whole exchange or topic of t.
func (t Target) exchangeOrTopic() Target { return Target{ExchangeOrTopic: t.ExchangeOrTopic} }

// Refused takes a rejection that blames the destination: the pause of the destination begins, or
// goes on. A fault of the pair or partition shows that the exchange or topic itself answers, so a
// pause of the exchange or topic ends; ended says whether one did. A rejection as not allowed shows
// nothing, because the relay itself refused the event. So a forged routing key does not end the
// pause of an exchange that is away. Beyond maxPauses no pause begins. Then nothing is known of the
// destination, and its rows wait for their time without a limit.
func (r *Pauses) Refused(p sink.Place, f *sink.Fault, now time.Time) (ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := Target{p.ExchangeOrTopic, p.Dest}
	if f.Whole {
		t.Dest = 0
	} else if e := r.paused[t.exchangeOrTopic()]; e != nil && f.Reason != sink.NotAllowed && !e.isHeld() {
		ended = r.endPause(t.exchangeOrTopic(), false, now)
	}
	most, bytes := maxPauses, maxPauseBytes
	if f.Reason == sink.NotAllowed {
		most, bytes = most/2, bytes/2
	}
	if e := r.paused[t]; e != nil {
		r.refusedAgain(e, f, now)
	} else if len(r.paused) < most && r.bytes < bytes {
		r.beginPause(t, f, now)
	}
	return ended
}

// beginPause adds a pause and schedules its first probe.
func (r *Pauses) beginPause(t Target, f *sink.Fault, now time.Time) {
	e := &pause{
		Paused: sink.Paused{Destination: f.Destination, Reason: f.Reason, Text: f.Text, Since: now, Fix: f.Held},
		fault:  f, refusal: newRefusal(now), probeTimes: probeTimes{wait: minProbe},
	}
	r.paused[t] = e
	r.bytes += len(e.Destination) + len(e.Text)
	r.count.Store(int32(len(r.paused)))
	r.scheduleProbe(e, now)
	if r.cfg.Began != nil {
		r.cfg.Began(e.Paused)
	}
}

// refusedAgain takes a rejection of a target that is paused already. A pause that is held keeps its
// fault.
func (r *Pauses) refusedAgain(e *pause, f *sink.Fault, now time.Time) {
	counted := e.refusal.add(now, e.gap)
	switch {
	case e.isHeld():
		return
	case f.Reason != sink.Nacked:
		e.nacks = 0
	case e.Reason == sink.Nacked:
		e.nacks += counted
	}
	r.bytes += len(f.Text) - len(e.Text)
	e.fault, e.Reason, e.Text, e.Fix, e.retryAsked = f, f.Reason, f.Text, f.Held, false
	if e.isHeld() && r.cfg.Began != nil {
		r.cfg.Began(e.Paused)
	}
}

// Confirmed takes a confirm. The confirm of a row ends the pause of its place, unless the pause is
// held; ended says whether it did. A new event was on the wire before the pause began, so its
// confirm ends no pause. But it shows that the refusal was not continuous: the refusal counts from
// this confirm.
func (r *Pauses) Confirmed(p sink.Place, row bool, now time.Time) (ended bool) {
	r.noteConfirm(p, now)
	if !r.AnyPaused() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	dest := Target{p.ExchangeOrTopic, p.Dest}
	for _, t := range [2]Target{dest.exchangeOrTopic(), dest} {
		switch e := r.paused[t]; {
		case e == nil:
		case row && !e.isHeld():
			ended = r.endPause(t, false, now) || ended
		default:
			e.refusal, e.nacks, e.wait = newRefusal(now), 0, minProbe
		}
	}
	return ended
}

// Forget ends the pause of a target when no row is left to probe it with. The next event finds out
// whether the destination accepts again.
func (r *Pauses) Forget(t Target, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endPause(t, true, now)
}

// endPause removes a pause, and reports whether there was one.
func (r *Pauses) endPause(t Target, forgotten bool, now time.Time) bool {
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

// refusal counts continuous refusal: since the last confirm, as far as this term knows. Only
// rejections count (I4), and for a held pause the times of its probes, which are not sent. A
// rejection adds the time since the one before, but no more than the wait that was chosen then.
// What is beyond that wait is not refusal, but time in which nobody could ask or nobody answered: a
// probe was out, or could not even be sent, because its lane was waiting inside Publish for a
// broker that was away.
type refusal struct {
	since  time.Time // when it began: the first rejection, or the last confirm
	last   time.Time // the last rejection
	lasted time.Duration
}

// newRefusal is the refusal that begins now, and has not lasted yet.
func newRefusal(now time.Time) refusal { return refusal{since: now, last: now} }

// add counts a rejection, and returns by how much the refusal became longer: at most atMost.
func (r *refusal) add(now time.Time, atMost time.Duration) time.Duration {
	counted := max(0, min(now.Sub(r.last), atMost))
	r.last, r.lasted = now, r.lasted+counted
	return counted
}

// lastedSince is for how long, at least, there was refusal after t. It takes all the time before t
// for refusal, also the time without an answer, and so errs on the low side.
func (r *refusal) lastedSince(t time.Time) time.Duration { return r.lasted - max(0, t.Sub(r.since)) }

// TooOld reports whether a row has waited for its destination as long as it may: whether the
// destination has refused for longer than MaxAge since the row was deferred, and since the
// destination's last confirm. Nothing is known of the time before the pause began, in this term and
// for this target, so that time does not count. So a row dies late rather than early.
func (r *Pauses) TooOld(p sink.Place, deferred time.Time) bool {
	if r.cfg.MaxAge <= 0 || !r.AnyPaused() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, e := r.pauseOf(p)
	return e != nil && e.refusal.lastedSince(deferred) > r.cfg.MaxAge
}

// OldTargets lists the targets that have refused for longer than MaxAge. The rows that wait for
// them may be too old, and the caller looks for these rows.
func (r *Pauses) OldTargets() (old []Target) {
	if r.cfg.MaxAge <= 0 || !r.AnyPaused() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, e := range r.paused {
		if e.refusal.lasted > r.cfg.MaxAge && !r.covered(t) {
			old = append(old, t)
		}
	}
	return old
}
