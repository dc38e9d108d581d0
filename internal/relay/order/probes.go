// When a paused destination is probed, and when the attempts of an event that is itself at fault
// are spent. Both decide how soon a fault ends: without probes a pause would never end, and without
// a limit an event that no broker accepts would be sent for ever.

package order

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Nothing else is sent to a paused target, and only the confirm of a row ends a pause. So from time
// to time one row per target is sent as a probe. The wait between two probes doubles up to
// maxProbe.
//
// A destination that nacks is perhaps one full queue of several that are bound, and the other
// queues take each probe. So after nackedTime of nothing but nacks the wait doubles on, up to
// maxNackedProbe. If the relay itself refuses (sink.NotAllowed), the wait may grow to
// maxNackedProbe at once: the patterns that refuse are those of the relay's start, so a probe only
// finds out that no row is left. A confirm, or an operator's request, begins again with minProbe.
const (
	minProbe       = time.Second
	maxProbe       = 10 * time.Second
	nackedTime     = 10 * time.Minute
	maxNackedProbe = 2 * time.Minute
)

// probeSpacing is the average time between two probes, or two turns, of all targets. Names may be
// made from data: with this spacing thousands of refusing destinations cost no more than a hundred.
const probeSpacing = 10 * time.Millisecond

// maxTurn bounds how long a row that does not wait for a pause waits for the turns of other rows.
const maxTurn = 2 * time.Minute

// probeTimes is when a paused target is probed.
type probeTimes struct {
	out  bool          // a probe is on its way
	at   time.Time     // of the next probe
	wait time.Duration // between two probes: minProbe, doubled by each refusal
	gap  time.Duration // wait and its jitter, as drawn for the next probe
	// searched is the time before which no further search for a row to probe with begins
	searched time.Time
}

// scheduleProbe sets the time of the next probe, with jitter: targets that were paused together are
// not probed together.
func (r *Pauses) scheduleProbe(e *pause, now time.Time) {
	wait := max(e.wait, time.Duration(len(r.paused))*probeSpacing)
	e.gap = wait + r.cfg.Jitter(wait/5)
	e.at = now.Add(e.gap)
}

// NextTurn takes a turn for a row that was refused and does not wait for a pause, and returns how
// long the row must wait for its turn. Beyond maxPauses there may be any number of such rows, so
// they take turns.
func (r *Pauses) NextTurn(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastTurn.Before(now) {
		r.lastTurn = now
	}
	wait := min(r.lastTurn.Add(probeSpacing).Sub(now), maxTurn)
	r.lastTurn = now.Add(wait)
	return wait
}

// ProbeAt is when a probe of the target is due. Zero means that the target is not paused, that a
// probe is on its way, or that the whole exchange or topic is paused, which is probed first. A lane
// with an ordering group at rest there asks for the probe with TakeProbe when the time has come.
func (r *Pauses) ProbeAt(t Target) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.paused[t]; e != nil && !e.out && !r.covered(t) {
		return e.at
	}
	return time.Time{}
}

// TakeProbe reports whether the caller may send a probe to the target now. A caller that gets true
// calls ProbeDone later, whatever happens. A held pause is not probed.
func (r *Pauses) TakeProbe(t Target, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.paused[t]
	if e == nil || e.out || e.at.After(now) || r.covered(t) {
		return false
	}
	if e.isHeld() { // the time of a probe is counted as a refusal all the same
		e.refusal.add(now, e.gap)
		e.wait = min(2*e.wait, maxProbe)
		r.scheduleProbe(e, now)
		return false
	}
	e.out = true
	return true
}

// ProbeDone takes the outcome of a probe, and schedules the next one; Unsent means that nothing was
// sent. Whether the pause ends, Refused or Confirmed has decided before.
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
		if e.nacks >= nackedTime || e.Reason == sink.NotAllowed {
			most = maxNackedProbe
		}
		e.wait = min(2*e.wait, most)
	}
	r.scheduleProbe(e, now)
	if out.State == sink.Unsent { // the destination was not asked: it need not wait for long
		e.at = now.Add(min(e.gap, maxProbe))
	}
}

// Retry makes the next probe of a paused place due now, also of a held one (an operator's `deferred
// retry`).
func (r *Pauses) Retry(p sink.Place, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, e := r.pauseOf(p); e != nil {
		e.wait, e.at, e.nacks, e.retryAsked = minProbe, now, 0, true
	}
}

// AddResting adds n, which may be negative, to the number of ordering groups at rest behind a
// target.
func (r *Pauses) AddResting(t Target, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resting[t] += n; r.resting[t] == 0 {
		delete(r.resting, t)
	}
}

// TargetsWithoutRows lists the paused targets whose probe is due and behind which no ordering group
// rests. The caller then walks through the table: the walk finds a row for the probe, or shows that
// no row is left. A target is listed at most once in maxProbe.
func (r *Pauses) TargetsWithoutRows(now time.Time) (lonely []Target) {
	if !r.AnyPaused() {
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
// for a fault of its own. They are watched to the end of the term, or until maxWatched is reached.
// A new key replaces the map, so that a confirm takes no lock.
type watched struct {
	of atomic.Pointer[map[uint64]*watch] // by watchKey
	mu sync.Mutex                        // held by who replaces the map, and for watch.refusal
}

// maxWatched bounds the map, because names may be made from data. When the map is full, all keys
// but the new one are forgotten.
const maxWatched = 1000

// watch is what has happened at one watched key.
type watch struct {
	confirmed atomic.Int64 // the last confirm, Unix nanoseconds; 0: none since the watch began
	refusal   refusal      // such rejections without a confirm; guarded by watched.mu
}

// watchKey is the key of a place in watched: the destination with OfDest, else the exchange or
// topic.
func (r *Pauses) watchKey(p sink.Place) uint64 {
	if r.cfg.OfDest {
		return p.Dest
	}
	return p.ExchangeOrTopic
}

// Watch begins to record confirms of the place's exchange or topic (with OfDest: destination),
// after an event for it was rejected for a fault of its own.
func (r *Pauses) Watch(p sink.Place) {
	w, key := &r.watched, r.watchKey(p)
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

// watchOf is what is recorded for a place; nil means that the place is not watched.
func (r *Pauses) watchOf(p sink.Place) *watch {
	if of := r.watched.of.Load(); of != nil {
		return (*of)[r.watchKey(p)]
	}
	return nil
}

// noteConfirm records the time of a confirm, if the place is watched.
func (r *Pauses) noteConfirm(p sink.Place, now time.Time) {
	// the events of a call have the same time: it is written once
	if w := r.watchOf(p); w != nil && w.confirmed.Load() != now.UnixNano() {
		w.confirmed.Store(now.UnixNano())
	}
}

// AttemptsSpent counts the rejection of a row for a fault of its own, after Watch, and reports
// whether the row's attempts are spent; first is the time of its first attempt. Attempts alone make
// no dead letter: if nothing is confirmed there, the event may not be at fault. So something of its
// exchange or topic must have been confirmed since the first attempt, or such rejections have gone
// on there for longer than MaxAge since then. Of the time between two rejections no more than
// MaxBackoff counts, because in an outage nothing is rejected.
func (r *Pauses) AttemptsSpent(p sink.Place, attempts, most int, first, now time.Time) bool {
	w := r.watchOf(p)
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
		w.refusal = newRefusal(now)
	case confirmed.After(w.refusal.since):
		w.refusal = newRefusal(confirmed)
	}
	w.refusal.add(now, r.cfg.MaxBackoff)
	return attempts >= most && (confirmed.After(first) || r.cfg.MaxAge > 0 && w.refusal.lastedSince(first) > r.cfg.MaxAge)
}
