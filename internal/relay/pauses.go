// Which destinations are paused.

package relay

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Pause is a paused destination. It rejected what was sent to it last, so its events are deferred
// without being sent.
type Pause struct {
	Destination string // as the broker's answer names it
	Reason      sink.Reason
	Text        string
	Since       time.Time
}

// maxPauses bounds the number of pauses: names may be made from data. Beyond it an event is sent,
// rejected and deferred.
const maxPauses = 10_000

// pauses are the paused destinations. A pause only saves useless sends: what keeps the order is the
// count of an ordering group (waitingGroups). So a pause may begin late, or be forgotten: in a
// restart, or when the retry table has no row left for the destination. Otherwise a confirm ends a
// pause only if it is of a row that the retry table fed (the probe). The confirm of a new event
// does not: that event may have been on the wire before the destination broke. A pause of a whole
// exchange or topic also ends when a fault blames only one of its pairs or partitions.
type pauses struct {
	log   *zap.Logger
	count atomic.Int32 // how many there are: zero saves the lanes the lock

	mu      sync.Mutex
	whole   map[uint64]*Pause
	dests   map[uint64]*Pause
	resumed chan struct{} // cap 1: a pause ended

	// watched are destinations with an event that was rejected for a fault of its own. The value is
	// the time of the last confirm there; zero: nothing was confirmed since the watch began.
	watching atomic.Int32
	watched  map[uint64]time.Time
}

func newPauses(log *zap.Logger) *pauses {
	return &pauses{
		log: log, resumed: make(chan struct{}, 1),
		whole: map[uint64]*Pause{}, dests: map[uint64]*Pause{}, watched: map[uint64]time.Time{},
	}
}

// paused reports whether the place, or its whole exchange or topic, is paused.
func (ps *pauses) paused(p sink.Place) bool {
	if ps.count.Load() == 0 {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.whole[p.ExchangeOrTopic] != nil || ps.dests[p.Dest] != nil
}

// pause pauses the destination that the fault blames. A fault of the pair or partition shows that
// the exchange or topic itself answers, so a pause of the exchange or topic ends.
func (ps *pauses) pause(p sink.Place, f *sink.Fault) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	at, of := ps.dests, p.Dest
	if f.Whole {
		at, of = ps.whole, p.ExchangeOrTopic
	} else {
		delete(ps.whole, p.ExchangeOrTopic)
	}
	was := at[of]
	switch {
	case was != nil:
		was.Reason, was.Text = f.Reason, f.Text
	case len(ps.whole)+len(ps.dests) < maxPauses:
		at[of] = &Pause{Destination: f.Destination, Reason: f.Reason, Text: f.Text, Since: time.Now()}
		ps.log.Warn("destination paused: its events wait in the retry table, others go on",
			zap.String("destination", f.Destination), zap.String("reason", string(f.Reason)), zap.String("fault", f.Text))
	}
	ps.count.Store(int32(len(ps.whole) + len(ps.dests)))
}

// resume ends the pause of the place's exchange or topic and destination.
func (ps *pauses) resume(p sink.Place) {
	if ps.count.Load() == 0 {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, was := range []*Pause{ps.whole[p.ExchangeOrTopic], ps.dests[p.Dest]} {
		if was != nil {
			ps.log.Info("destination accepts again", zap.String("destination", was.Destination),
				zap.Duration("paused", time.Since(was.Since).Round(time.Millisecond)))
		}
	}
	delete(ps.whole, p.ExchangeOrTopic)
	delete(ps.dests, p.Dest)
	n := int32(len(ps.whole) + len(ps.dests))
	if ps.count.Swap(n) == n {
		return // neither was paused
	}
	select {
	case ps.resumed <- struct{}{}:
	default:
	}
}

// Forget ends the pause of a destination (with Dest 0: of a whole exchange or topic) when nothing
// is left to probe it with: no row of the retry table goes there. The next event finds out whether
// it accepts again.
func (l *Line) Forget(p sink.Place) { l.pauses.forget(p) }

func (ps *pauses) forget(p sink.Place) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	at, of := ps.dests, p.Dest
	if p.Dest == 0 {
		at, of = ps.whole, p.ExchangeOrTopic
	}
	if was := at[of]; was != nil {
		delete(at, of)
		ps.log.Info("destination no longer paused: none of its events is left in the retry table", zap.String("destination", was.Destination))
	}
	ps.count.Store(int32(len(ps.whole) + len(ps.dests)))
}

// list returns what is paused, the longest first.
func (ps *pauses) list() []Pause {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]Pause, 0, len(ps.whole)+len(ps.dests))
	for _, m := range []map[uint64]*Pause{ps.whole, ps.dests} {
		for _, was := range m {
			out = append(out, *was)
		}
	}
	slices.SortFunc(out, func(a, b Pause) int { return a.Since.Compare(b.Since) })
	return out
}

// watch begins to record confirms of a destination.
func (ps *pauses) watch(dest uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if _, known := ps.watched[dest]; known {
		return
	}
	if len(ps.watched) >= maxPauses {
		clear(ps.watched) // forgetting is safe: it only means that no confirm is known
	}
	ps.watched[dest] = time.Time{}
	ps.watching.Store(int32(len(ps.watched)))
}

// confirmed records the confirms of watched destinations.
func (ps *pauses) confirmed(items []*item, now time.Time) {
	if ps.watching.Load() == 0 {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, it := range items {
		if _, ok := ps.watched[it.place.Dest]; ok {
			ps.watched[it.place.Dest] = now
		}
	}
}

// confirmedSince reports whether something of dest is known to have been confirmed after that time.
func (ps *pauses) confirmedSince(dest uint64, at time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.watched[dest].After(at)
}
