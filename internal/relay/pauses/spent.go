// Whether the attempts of an event whose fault is its own are spent.

package pauses

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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

func (r *Registry) watchOf(p sink.Place) uint64 {
	if r.cfg.OfDest {
		return p.Dest
	}
	return p.ExchangeOrTopic
}

// Watch begins to record confirms of the place's exchange or topic.
func (r *Registry) Watch(p sink.Place) {
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

func (r *Registry) watch(p sink.Place) *watch {
	if of := r.watched.of.Load(); of != nil {
		return (*of)[r.watchOf(p)]
	}
	return nil
}

func (r *Registry) confirmedAnywhere(p sink.Place, now time.Time) {
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
func (r *Registry) Spent(p sink.Place, attempts, most int, first, now time.Time) bool {
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
