// How long a destination has refused without a break, and which rows have waited too long for it.

package pauses

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// refusal counts continuous refusal: since the last confirm, as far as this term knows. Only
// rejections count (I4). A rejection adds the time since the one before, but no more than the wait
// that was chosen then. What is beyond that wait is not refusal, but time in which nobody could ask
// or nobody answered: a probe was out, or it could not even go, because its lane was waiting inside
// Publish for a broker that was away.
type refusal struct {
	since  time.Time // when it began: the first rejection, or the last confirm
	last   time.Time // the last rejection
	lasted time.Duration
}

func begun(now time.Time) refusal { return refusal{since: now, last: now} }

// again takes a rejection, and returns how much it adds.
func (r *refusal) again(now time.Time, atMost time.Duration) time.Duration {
	counted := max(0, min(now.Sub(r.last), atMost))
	r.last, r.lasted = now, r.lasted+counted
	return counted
}

// from is for how long there has been refusal since t, at least: all the time before t is taken for
// refusal, also that without an answer.
func (r *refusal) from(t time.Time) time.Duration { return r.lasted - max(0, t.Sub(r.since)) }

// TooOld reports whether a row has waited for its destination as long as it may: whether the
// destination has refused for so long since the row was deferred, and since its last confirm.
// Nothing is known of the time before the pause began, in this term and for this target: it does
// not count. So a row dies late rather than early.
func (r *Registry) TooOld(p sink.Place, deferred time.Time) bool {
	if r.cfg.MaxAge <= 0 || !r.Any() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, e := r.of(p)
	return e != nil && e.refusal.from(deferred) > r.cfg.MaxAge
}

// Old lists the targets that have refused for longer than MaxAge: they may have rows that are too
// old.
func (r *Registry) Old() (old []Target) {
	if r.cfg.MaxAge <= 0 || !r.Any() {
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
