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

// Gate is a destination that is paused: it refused what was sent to it last. Its events are parked
// unsent.
type Gate struct {
	Destination string // as the broker's answer accuses it
	Reason      sink.Reason
	Words       string
	Since       time.Time
}

// maxGates bounds what is known to be paused: names may be made from data. Beyond it an event is
// sent, refused and parked.
const maxGates = 10_000

// gates are the destinations that are paused. A gate only spares useless sends: what keeps the
// order is the count of a chain (waitingGroups). So it may be shut late, or forgotten: in a
// restart, or when the siding has no row left that goes there. It opens at the confirm of a row
// that the siding fed, its probe, and by nothing else: a new event that is confirmed now may have
// been on the wire before the destination broke.
type gates struct {
	log   *zap.Logger
	count atomic.Int32 // of shut ones: zero spares the lanes the lock

	mu      sync.Mutex
	units   map[uint64]*Gate
	dests   map[uint64]*Gate
	changed chan struct{} // cap 1: one opened

	// watched are destinations with an event that was refused for a fault of its own: when
	// something of them was confirmed last, zero for not since they are watched.
	watching atomic.Int32
	watched  map[uint64]time.Time
}

func newGates(log *zap.Logger) *gates {
	return &gates{
		log: log, changed: make(chan struct{}, 1),
		units: map[uint64]*Gate{}, dests: map[uint64]*Gate{}, watched: map[uint64]time.Time{},
	}
}

// paused reports whether an event of that place would be refused.
func (g *gates) paused(p sink.Place) bool {
	if g.count.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.units[p.Unit] != nil || g.dests[p.Dest] != nil
}

// shut pauses what the fault accuses. A fault of the pair or partition says that the exchange or
// topic itself answers.
func (g *gates) shut(p sink.Place, f *sink.Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, of := g.dests, p.Dest
	if f.Whole {
		at, of = g.units, p.Unit
	} else {
		delete(g.units, p.Unit)
	}
	was := at[of]
	switch {
	case was != nil:
		was.Reason, was.Words = f.Reason, f.Words
	case len(g.units)+len(g.dests) < maxGates:
		at[of] = &Gate{Destination: f.Destination, Reason: f.Reason, Words: f.Words, Since: time.Now()}
		g.log.Warn("destination paused: its events wait in the retry table, others go on",
			zap.String("destination", f.Destination), zap.String("reason", string(f.Reason)), zap.String("fault", f.Words))
	}
	g.count.Store(int32(len(g.units) + len(g.dests)))
}

// open ends the pause of the place's unit and destination.
func (g *gates) open(p sink.Place) {
	if g.count.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, gate := range []*Gate{g.units[p.Unit], g.dests[p.Dest]} {
		if gate != nil {
			g.log.Info("destination accepts again", zap.String("destination", gate.Destination),
				zap.Duration("paused", time.Since(gate.Since).Round(time.Millisecond)))
		}
	}
	delete(g.units, p.Unit)
	delete(g.dests, p.Dest)
	n := int32(len(g.units) + len(g.dests))
	if g.count.Swap(n) == n {
		return // it was another one
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Forget ends the pause of a destination, or with Dest 0 of a whole unit, that nothing is left to
// probe with: no row of the siding goes there. It is not known whether it accepts again; the next
// event finds out.
func (l *Line) Forget(p sink.Place) { l.gates.forget(p) }

func (g *gates) forget(p sink.Place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, of := g.dests, p.Dest
	if p.Dest == 0 {
		at, of = g.units, p.Unit
	}
	if gate := at[of]; gate != nil {
		delete(at, of)
		g.log.Info("destination is paused no longer: none of its events is left in the retry table", zap.String("destination", gate.Destination))
	}
	g.count.Store(int32(len(g.units) + len(g.dests)))
}

// list is what is paused, the longest first.
func (g *gates) list() []Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Gate, 0, len(g.units)+len(g.dests))
	for _, m := range []map[uint64]*Gate{g.units, g.dests} {
		for _, gate := range m {
			out = append(out, *gate)
		}
	}
	slices.SortFunc(out, func(a, b Gate) int { return a.Since.Compare(b.Since) })
	return out
}

// watch begins to note confirms of a destination.
func (g *gates) watch(dest uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.watched[dest]; known {
		return
	}
	if len(g.watched) >= maxGates {
		clear(g.watched) // the safe side: nothing is known to be confirmed
	}
	g.watched[dest] = time.Time{}
	g.watching.Store(int32(len(g.watched)))
}

// confirmed notes the confirms of watched destinations.
func (g *gates) confirmed(items []*item, now time.Time) {
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
func (g *gates) confirmedSince(dest uint64, at time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.watched[dest].After(at)
}
