// When a paused destination may be sent an event, and whether the attempts of an event whose fault
// is its own are spent.

package order

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Nothing else is sent to what is paused, and only the confirm of a row ends a pause. So from time
// to time one row per target is sent as a probe. The wait between two probes doubles up to
// maxProbe. A destination that nacks is perhaps one full queue of several that are bound, and the
// others take each probe. So after nacksFor of nothing but nacks the wait doubles on, up to
// maxNackedProbe. So it does at once where the relay itself refuses: its patterns are those of its
// start, so such a probe only finds out that no row is left. A confirm, or an operator's request,
// begins again with minProbe.
const (
	minProbe       = time.Second
	maxProbe       = 10 * time.Second
	nacksFor       = 10 * time.Minute
	maxNackedProbe = 2 * time.Minute
)

// each is how long a probe has to itself: names may be made from data, and thousands of
// destinations that refuse cost as much as a hundred.
const each = 10 * time.Millisecond

// maxTurn bounds what others cost a row that does not wait for a pause.
const maxTurn = 2 * time.Minute

// probe is when a paused target is probed.
type probe struct {
	out      bool
	at       time.Time     // of the next probe
	wait     time.Duration // between two probes
	gap      time.Duration // wait, as it was drawn for the next probe
	searched time.Time     // no search for a row to probe with before that time
}

// schedule sets the time of the next probe. Targets that were paused together are not probed
// together.
func (r *Pauses) schedule(e *entry, now time.Time) {
	wait := max(e.wait, time.Duration(len(r.paused))*each)
	e.gap = wait + r.cfg.Jitter(wait/5)
	e.at = now.Add(e.gap)
}

// Turn is the least wait of a row that was refused and does not wait for a pause. Each such row
// takes a turn: beyond maxPauses there may be any number of them.
func (r *Pauses) Turn(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn.Before(now) {
		r.turn = now
	}
	wait := min(r.turn.Add(each).Sub(now), maxTurn)
	r.turn = now.Add(wait)
	return wait
}

// ProbeAt is when a probe of the target is due; zero: it is not paused, or a probe is on its way,
// or its whole exchange or topic is paused: that is probed first. A lane that has an ordering group
// at rest there then asks for it with TakeProbe.
func (r *Pauses) ProbeAt(t Target) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.paused[t]; e != nil && !e.out && !r.covered(t) {
		return e.at
	}
	return time.Time{}
}

// TakeProbe reports whether the caller may send a probe to the target now. It then calls ProbeDone.
func (r *Pauses) TakeProbe(t Target, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.paused[t]
	if e == nil || e.out || e.at.After(now) || r.covered(t) {
		return false
	}
	if e.isHeld() { // the time of a probe is counted as a refusal all the same
		e.refusal.again(now, e.gap)
		e.wait = min(2*e.wait, maxProbe)
		r.schedule(e, now)
		return false
	}
	e.out = true
	return true
}

// ProbeDone takes the outcome of a probe; Unsent: nothing was sent. What follows from the outcome
// for the pause, Refused and Confirmed have been told before.
func (r *Pauses) ProbeDone(t Target, out sink.Outcome, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.paused[t]
	if e == nil || !e.out {
		return
	}
	e.out = false
	if out.State == sink.Rejected && out.Fault != nil && out.Fault.Class == sink.Destination {
		most := maxProbe
		if e.nacks >= nacksFor || e.Reason == sink.NotAllowed {
			most = maxNackedProbe
		}
		e.wait = min(2*e.wait, most)
	}
	r.schedule(e, now)
	if out.State == sink.Unsent { // the destination was not asked: it need not wait for long
		e.at = now.Add(min(e.gap, maxProbe))
	}
}

// Retry lets the next probe of what is paused of a place go now (an operator's `deferred retry`).
func (r *Pauses) Retry(p sink.Place, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, e := r.of(p); e != nil {
		e.wait, e.at, e.nacks, e.asked = minProbe, now, 0, true
	}
}

// Candidates adds to the number of ordering groups that the lanes have at rest behind a target.
func (r *Pauses) Candidates(t Target, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resting[t] += n; r.resting[t] == 0 {
		delete(r.resting, t)
	}
}

// Lonely lists the paused targets of which a probe is due and no ordering group is at rest: a walk
// finds one, or nothing is left there. It lists a target once in maxProbe.
func (r *Pauses) Lonely(now time.Time) (lonely []Target) {
	if !r.Any() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, e := range r.paused {
		if r.resting[t] == 0 && !e.out && !e.at.After(now) && !e.searched.After(now) && !r.covered(t) {
			e.searched = now.Add(maxProbe + r.cfg.Jitter(maxProbe/5))
			lonely = append(lonely, t)
		}
	}
	return lonely
}

// watched are the exchanges and topics (with OfDest: destinations) with an event that was rejected
// for a fault of its own. The map is copied to be changed, so that a confirm takes no lock: what is
// watched stays so to the end of the term.
type watched struct {
	of atomic.Pointer[map[uint64]*watch]
	mu sync.Mutex
}

// maxWatched bounds the map: names may be made from data.
const maxWatched = 1000

type watch struct {
	confirmed atomic.Int64 // the last confirm, Unix nanoseconds; 0: none since the watch began
	refusal   refusal      // such rejections without a confirm; guarded by watched.mu
}

func (r *Pauses) watchOf(p sink.Place) uint64 {
	if r.cfg.OfDest {
		return p.Dest
	}
	return p.ExchangeOrTopic
}

// Watch begins to record confirms of the place's exchange or topic.
func (r *Pauses) Watch(p sink.Place) {
	w, key := &r.watched, r.watchOf(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[uint64]*watch{}
	if of := w.of.Load(); of != nil && (*of)[key] != nil {
		return
	} else if of != nil && len(*of) < maxWatched {
		known = maps.Clone(*of)
	} // else all are forgotten, which is safe: it only means that no confirm is known
	known[key] = &watch{}
	w.of.Store(&known)
}

func (r *Pauses) watch(p sink.Place) *watch {
	if of := r.watched.of.Load(); of != nil {
		return (*of)[r.watchOf(p)]
	}
	return nil
}

func (r *Pauses) confirmedAnywhere(p sink.Place, now time.Time) {
	// the events of a call have the same time: it is written once
	if w := r.watch(p); w != nil && w.confirmed.Load() != now.UnixNano() {
		w.confirmed.Store(now.UnixNano())
	}
}

// Spent takes the rejection of a row for a fault of its own, after Watch, and reports whether its
// attempts are spent; first is its first attempt. Attempts alone do not make a dead letter: if
// nothing passes there, it may not be the event's fault. So something of its exchange or topic must
// have been confirmed since the first attempt, or such rejections have gone on there for longer
// than MaxAge since then. Of the time between two of them no more than MaxBackoff counts: in an
// outage nothing is rejected.
func (r *Pauses) Spent(p sink.Place, attempts, most int, first, now time.Time) bool {
	w := r.watch(p)
	if w == nil {
		return false
	}
	r.watched.mu.Lock()
	defer r.watched.mu.Unlock()
	var confirmed time.Time
	if at := w.confirmed.Load(); at != 0 {
		confirmed = time.Unix(0, at)
	}
	switch {
	case w.refusal.since.IsZero():
		w.refusal = begun(now)
	case confirmed.After(w.refusal.since):
		w.refusal = begun(confirmed)
	}
	w.refusal.again(now, r.cfg.MaxBackoff)
	return attempts >= most && (confirmed.After(first) || r.cfg.MaxAge > 0 && w.refusal.from(first) > r.cfg.MaxAge)
}
