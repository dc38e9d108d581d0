// Sweeps: they go through the table, page by page, and make ready the ordering groups that nothing
// else makes ready.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// sweepOn reads the next page of a sweep when there is room for the ordering groups that it finds.
// The sweeps take turns. Pages after which nothing could be fed cost a tenth of the time at most.
func (f *feeder) sweepOn(ctx context.Context) (bool, error) {
	now := time.Now()
	if len(f.sweeps) == 0 || f.swept || len(f.ready.order) >= sweepBelow || now.Before(f.sweepAt) {
		return false, nil
	}
	if f.offered == f.sweepBefore && f.sweepCost > 0 {
		f.sweepAt = now.Add(9 * f.sweepCost)
		f.sweepCost = 0
		return false, nil
	}
	f.sweepBefore, f.sweepCost = f.offered, 0
	s := f.sweeps[0]
	f.sweeps = append(f.sweeps[1:], s)
	if s.ended {
		// the ordering groups that it found are read first
		if f.taken < s.until && len(f.ready.order) > 0 {
			f.swept = true
			return false, nil
		}
		f.sweeps = f.sweeps[:len(f.sweeps)-1]
		f.complete(s)
		return true, nil
	}
	if !s.begun {
		s.owes = f.owedIn(s.of)
	}
	groups, err := f.next(ctx, &s.walk)
	f.sweepCost += time.Since(now)
	if err != nil {
		return false, err
	}
	f.swept = len(groups) > 0
	for _, group := range groups {
		f.makeReady(group, false)
	}
	if s.ended {
		s.until = f.taken + len(f.ready.order)
	}
	return true, nil
}

// owedIn returns the exchanges or topics, counted as a whole in a lane, that are owed NotNow and
// that a sweep will cover.
func (f *feeder) owedIn(t target) []owing {
	var owes []owing
	for o := range f.owedWhole {
		if t.exchangeOrTopic == 0 || t.exchangeOrTopic == o.exchangeOrTopic && t.dest == 0 {
			owes = append(owes, o)
		}
	}
	return owes
}

// complete ends a sweep. If an exchange or topic is counted as a whole and was owed NotNow before
// the sweep began, the sweep has found every row of it that may go. So no row may go now if none is
// in flight.
func (f *feeder) complete(s *sweep) {
	for _, o := range s.owes {
		group, owed := f.owedWhole[o]
		if !owed {
			continue
		}
		delete(f.owedWhole, o)
		if !f.exchangeOrTopicInFlight(o) {
			f.s.line.NotNow(o.lane, group, o.exchangeOrTopic)
		}
	}
	if s.again {
		f.sweep(s.of)
	}
}

// exchangeOrTopicInFlight reports whether rows of the exchange or topic are in that lane: NotNow is
// owed again when they finish. Rows without an ordering group do not matter here, because they are
// not counted.
func (f *feeder) exchangeOrTopicInFlight(o owing) bool {
	for _, r := range f.runs {
		if r.ordered && r.lane == o.lane && r.exchangeOrTopic == o.exchangeOrTopic {
			return true
		}
	}
	return false
}

// walk goes through the ordering groups that have rows for a target, page by page.
type walk struct {
	of    target // the zero target: all destinations
	open  bool   // only those that are not paused
	at    store.Cursor
	begun bool
	ended bool
	found bool // any ordering group
}

// pageRows is how many rows a page reads.
const pageRows = 500

// next reads the next page with one statement. A page may be empty before the end.
func (f *feeder) next(ctx context.Context, w *walk) (groups []uint64, err error) {
	switch {
	case !w.begun && w.of.dest != 0:
		w.at = store.Cursor{ExchangeOrTopic: w.of.exchangeOrTopic, Dest: w.of.dest}
		w.begun = true
		return f.next(ctx, w)
	case !w.begun:
		from := store.Cursor{}
		if w.of.exchangeOrTopic != 0 {
			from = store.Cursor{ExchangeOrTopic: w.of.exchangeOrTopic, Dest: firstDest}
		}
		return nil, f.skip(ctx, w, from)
	case w.open && f.isPaused(sink.Place{ExchangeOrTopic: w.at.ExchangeOrTopic}, 0):
		return nil, f.skip(ctx, w, store.Cursor{ExchangeOrTopic: w.at.ExchangeOrTopic, Dest: store.LastDest})
	case w.open && f.isPaused(sink.Place{ExchangeOrTopic: w.at.ExchangeOrTopic, Dest: w.at.Dest}, 0):
		return nil, f.skip(ctx, w, w.at)
	}
	groups, next, err := f.cfg.Store.Sweep(ctx, w.at, pageRows)
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, f.skip(ctx, w, w.at)
	}
	w.at, w.found = next, true
	return groups, nil
}

// skip goes on behind the destination of a cursor.
func (f *feeder) skip(ctx context.Context, w *walk, from store.Cursor) error {
	if w.begun && (w.of.dest != 0 || w.of.exchangeOrTopic != 0 && from.Dest == store.LastDest) {
		w.ended = true
		return nil
	}
	at, ok, err := f.cfg.Store.Skip(ctx, from)
	if err != nil {
		return err
	}
	w.at, w.begun = at, true
	w.ended = !ok || w.of.exchangeOrTopic != 0 && at.ExchangeOrTopic != w.of.exchangeOrTopic
	return nil
}

// firstDest is the lowest Dest as Cursor compares them.
const firstDest uint64 = 1 << 63

// sweep is a walk that makes ready the ordering groups that it finds. Each sweep has a reason: the
// start, the end of a pause, missed notifications, a cut-over that must end. No sweep is repeated
// without a reason.
type sweep struct {
	walk
	again bool // requested once more since it began
	owes  []owing
	until int // the value of taken at which the ordering groups that it found have been read
}

const (
	maxSweeps  = 64   // more sweeps become one over everything
	sweepBelow = 2000 // ordering groups that are ready
)
