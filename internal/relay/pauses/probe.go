// The one prober: when a paused destination may be sent an event.

package pauses

import (
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
func (r *Registry) schedule(e *entry, now time.Time) {
	wait := max(e.wait, time.Duration(len(r.paused))*each)
	e.gap = wait + r.cfg.Jitter(wait/5)
	e.at = now.Add(e.gap)
}

// Turn is the least wait of a row that was refused and does not wait for a pause. Each such row
// takes a turn: beyond maxPauses there may be any number of them.
func (r *Registry) Turn(now time.Time) time.Duration {
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
func (r *Registry) ProbeAt(t Target) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.paused[t]; e != nil && !e.out && !r.covered(t) {
		return e.at
	}
	return time.Time{}
}

// TakeProbe reports whether the caller may send a probe to the target now. It then calls ProbeDone.
func (r *Registry) TakeProbe(t Target, now time.Time) bool {
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
func (r *Registry) ProbeDone(t Target, out sink.Outcome, now time.Time) {
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
func (r *Registry) Retry(p sink.Place, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, e := r.of(p); e != nil {
		e.wait, e.at, e.nacks, e.asked = minProbe, now, 0, true
	}
}

// Candidates adds to the number of ordering groups that the lanes have at rest behind a target.
func (r *Registry) Candidates(t Target, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resting[t] += n; r.resting[t] == 0 {
		delete(r.resting, t)
	}
}

// Lonely lists the paused targets of which a probe is due and no ordering group is at rest: a walk
// finds one, or nothing is left there. It lists a target once in maxProbe.
func (r *Registry) Lonely(now time.Time) (lonely []Target) {
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
