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

// Pause is a paused destination: it refused what was sent to it last, so its events are deferred
// without being sent.
type Pause struct {
	Destination string // as the broker's answer accuses it
	Reason      sink.Reason
	Text        string
	Since       time.Time
}

// maxPauses bounds the number of pauses: names may be made from data. Beyond it an event is sent,
// rejected and deferred.
const maxPauses = 10_000

// pauses are the paused destinations. A pause only saves useless sends: what keeps the order is the
// count of an ordering group (waitingGroups). So a pause may begin late, or be forgotten: in a
// restart, or when the retry table has no row left that goes there. It ends at the confirm of a row
// that the retry table fed (its probe), and at nothing else: a new event that is confirmed now may
// have been on the wire before the destination broke.
type pauses struct {
	log   *zap.Logger
	count atomic.Int32 // how many there are: zero saves the lanes the lock

	mu      sync.Mutex
	whole   map[uint64]*Pause
	dests   map[uint64]*Pause
	resumed chan struct{} // cap 1: a pause ended

	// watched are destinations with an event that was rejected for a fault of its own, with the
	// time at which something was last confirmed there; zero: nothing since they are watched.
	watching atomic.Int32
	watched  map[uint64]time.Time
}

func newPauses(log *zap.Logger) *pauses {
	return &pauses{
		log: log, resumed: make(chan struct{}, 1),
		whole: map[uint64]*Pause{}, dests: map[uint64]*Pause{}, watched: map[uint64]time.Time{},
	}
}

// paused reports whether that place, or its whole exchange or topic, is paused.
func (g *pauses) paused(p sink.Place) bool {
	if g.count.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.whole[p.ExchangeOrTopic] != nil || g.dests[p.Dest] != nil
}

// pause pauses what the fault accuses. A fault of the pair or partition shows that the exchange or
// topic itself answers, so a pause of that ends.
func (g *pauses) pause(p sink.Place, f *sink.Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, of := g.dests, p.Dest
	if f.Whole {
		at, of = g.whole, p.ExchangeOrTopic
	} else {
		delete(g.whole, p.ExchangeOrTopic)
	}
	was := at[of]
	switch {
	case was != nil:
		was.Reason, was.Text = f.Reason, f.Text
	case len(g.whole)+len(g.dests) < maxPauses:
		at[of] = &Pause{Destination: f.Destination, Reason: f.Reason, Text: f.Text, Since: time.Now()}
		g.log.Warn("destination paused: its events wait in the retry table, others go on",
			zap.String("destination", f.Destination), zap.String("reason", string(f.Reason)), zap.String("fault", f.Text))
	}
	g.count.Store(int32(len(g.whole) + len(g.dests)))
}

// resume ends the pause of the place's exchange or topic and destination.
func (g *pauses) resume(p sink.Place) {
	if g.count.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, was := range []*Pause{g.whole[p.ExchangeOrTopic], g.dests[p.Dest]} {
		if was != nil {
			g.log.Info("destination accepts again", zap.String("destination", was.Destination),
				zap.Duration("paused", time.Since(was.Since).Round(time.Millisecond)))
		}
	}
	delete(g.whole, p.ExchangeOrTopic)
	delete(g.dests, p.Dest)
	n := int32(len(g.whole) + len(g.dests))
	if g.count.Swap(n) == n {
		return // neither was paused
	}
	select {
	case g.resumed <- struct{}{}:
	default:
	}
}

// Forget ends the pause of a destination (with Dest 0: of a whole exchange or topic) when nothing
// is left to probe it with: no row of the retry table goes there. The next event finds out whether
// it accepts again.
func (l *Line) Forget(p sink.Place) { l.pauses.forget(p) }

func (g *pauses) forget(p sink.Place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, of := g.dests, p.Dest
	if p.Dest == 0 {
		at, of = g.whole, p.ExchangeOrTopic
	}
	if was := at[of]; was != nil {
		delete(at, of)
		g.log.Info("destination no longer paused: none of its events is left in the retry table", zap.String("destination", was.Destination))
	}
	g.count.Store(int32(len(g.whole) + len(g.dests)))
}

// list returns what is paused, the longest first.
func (g *pauses) list() []Pause {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Pause, 0, len(g.whole)+len(g.dests))
	for _, m := range []map[uint64]*Pause{g.whole, g.dests} {
		for _, was := range m {
			out = append(out, *was)
		}
	}
	slices.SortFunc(out, func(a, b Pause) int { return a.Since.Compare(b.Since) })
	return out
}

// watch begins to record confirms of a destination.
func (g *pauses) watch(dest uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.watched[dest]; known {
		return
	}
	if len(g.watched) >= maxPauses {
		clear(g.watched) // the safe side: no confirm is known
	}
	g.watched[dest] = time.Time{}
	g.watching.Store(int32(len(g.watched)))
}

// confirmed records the confirms of watched destinations.
func (g *pauses) confirmed(items []*item, now time.Time) {
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
func (g *pauses) confirmedSince(dest uint64, at time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.watched[dest].After(at)
}
