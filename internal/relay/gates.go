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

// Paused destination is a destination that is paused: it refused what was sent to it last. Its
// events are deferred unsent.
type PausedDest struct {
	Destination string // as the broker's answer accuses it
	Reason      sink.Reason
	Words       string
	Since       time.Time
}

// maxPausedDests bounds what is known to be paused: names may be made from data. Beyond it an event
// is sent, refused and deferred.
const maxPausedDests = 10_000

// paused destinations are the destinations that are paused. A paused destination only spares
// useless sends: what keeps the order is the count of an ordering group (waitingGroups). So it may
// be shut late, or forgotten: in a restart, or when the retry table has no row left that goes
// there. It opens at the confirm of a row that the retry table fed, its probe, and by nothing else:
// a new event that is confirmed now may have been on the wire before the destination broke.
type pausedDests struct {
	log   *zap.Logger
	count atomic.Int32 // of shut ones: zero spares the lanes the lock

	mu                sync.Mutex
	exchangesOrTopics map[uint64]*PausedDest
	dests             map[uint64]*PausedDest
	changed           chan struct{} // cap 1: one opened

	// watched are destinations with an event that was refused for a fault of its own: when
	// something of them was confirmed last, zero for not since they are watched.
	watching atomic.Int32
	watched  map[uint64]time.Time
}

func newPausedDests(log *zap.Logger) *pausedDests {
	return &pausedDests{
		log: log, changed: make(chan struct{}, 1),
		exchangesOrTopics: map[uint64]*PausedDest{}, dests: map[uint64]*PausedDest{}, watched: map[uint64]time.Time{},
	}
}

// paused reports whether an event of that place would be refused.
func (g *pausedDests) paused(p sink.Place) bool {
	if g.count.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exchangesOrTopics[p.ExchangeOrTopic] != nil || g.dests[p.Dest] != nil
}

// shut pauses what the fault accuses. A fault of the pair or partition says that the exchange or
// topic itself answers.
func (g *pausedDests) shut(p sink.Place, f *sink.Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, of := g.dests, p.Dest
	if f.Whole {
		at, of = g.exchangesOrTopics, p.ExchangeOrTopic
	} else {
		delete(g.exchangesOrTopics, p.ExchangeOrTopic)
	}
	was := at[of]
	switch {
	case was != nil:
		was.Reason, was.Words = f.Reason, f.Words
	case len(g.exchangesOrTopics)+len(g.dests) < maxPausedDests:
		at[of] = &PausedDest{Destination: f.Destination, Reason: f.Reason, Words: f.Words, Since: time.Now()}
		g.log.Warn("destination paused: its events wait in the retry table, others go on",
			zap.String("destination", f.Destination), zap.String("reason", string(f.Reason)), zap.String("fault", f.Words))
	}
	g.count.Store(int32(len(g.exchangesOrTopics) + len(g.dests)))
}

// open ends the pause of the place's exchange or topic and destination.
func (g *pausedDests) open(p sink.Place) {
	if g.count.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pausedDest := range []*PausedDest{g.exchangesOrTopics[p.ExchangeOrTopic], g.dests[p.Dest]} {
		if pausedDest != nil {
			g.log.Info("destination accepts again", zap.String("destination", pausedDest.Destination),
				zap.Duration("paused", time.Since(pausedDest.Since).Round(time.Millisecond)))
		}
	}
	delete(g.exchangesOrTopics, p.ExchangeOrTopic)
	delete(g.dests, p.Dest)
	n := int32(len(g.exchangesOrTopics) + len(g.dests))
	if g.count.Swap(n) == n {
		return // it was another one
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Forget ends the pause of a destination, or with Dest 0 of a whole exchange or topic, that nothing
// is left to probe with: no row of the retry table goes there. It is not known whether it accepts
// again; the next event finds out.
func (l *Line) Forget(p sink.Place) { l.pausedDests.forget(p) }

func (g *pausedDests) forget(p sink.Place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, of := g.dests, p.Dest
	if p.Dest == 0 {
		at, of = g.exchangesOrTopics, p.ExchangeOrTopic
	}
	if pausedDest := at[of]; pausedDest != nil {
		delete(at, of)
		g.log.Info("destination is paused no longer: none of its events is left in the retry table", zap.String("destination", pausedDest.Destination))
	}
	g.count.Store(int32(len(g.exchangesOrTopics) + len(g.dests)))
}

// list is what is paused, the longest first.
func (g *pausedDests) list() []PausedDest {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]PausedDest, 0, len(g.exchangesOrTopics)+len(g.dests))
	for _, m := range []map[uint64]*PausedDest{g.exchangesOrTopics, g.dests} {
		for _, pausedDest := range m {
			out = append(out, *pausedDest)
		}
	}
	slices.SortFunc(out, func(a, b PausedDest) int { return a.Since.Compare(b.Since) })
	return out
}

// watch begins to note confirms of a destination.
func (g *pausedDests) watch(dest uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.watched[dest]; known {
		return
	}
	if len(g.watched) >= maxPausedDests {
		clear(g.watched) // the safe side: nothing is known to be confirmed
	}
	g.watched[dest] = time.Time{}
	g.watching.Store(int32(len(g.watched)))
}

// confirmed notes the confirms of watched destinations.
func (g *pausedDests) confirmed(items []*item, now time.Time) {
	if g.watching.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, it := range items {
		if _, ok := g.watched[it.place.Dest]; ok {
			g.watched[it.place.Dest] = now
		}
	}
}

// confirmedSince reports whether something of dest is known to have been confirmed after that time.
func (g *pausedDests) confirmedSince(dest uint64, at time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.watched[dest].After(at)
}
