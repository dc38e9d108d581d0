// Pages of ordering groups by destination.

package retry

import (
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// walk goes through the ordering groups that have rows for some destinations, page by page.
type walk struct {
	of    pausedDest // the zero paused destination: all destinations
	open  bool       // only those that are not paused
	at    store.Cursor
	begun bool
	ended bool
	found bool // any ordering group
}

// pageRows is how many rows a page looks at.
const pageRows = 500

// next is the next page; it may be empty before the end. One statement.
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
	case w.open && f.shut(sink.Place{ExchangeOrTopic: w.at.ExchangeOrTopic}, 0):
		return nil, f.skip(ctx, w, store.Cursor{ExchangeOrTopic: w.at.ExchangeOrTopic, Dest: store.LastDest})
	case w.open && f.shut(sink.Place{ExchangeOrTopic: w.at.ExchangeOrTopic, Dest: w.at.Dest}, 0):
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

// sweep is a walk that readies what it finds. One is started for a reason: the start, a paused
// destination that opened, news that was missed, a cut-over to be ended. None is repeated without
// one.
type sweep struct {
	walk
	again bool // asked for once more since it began
	owes  []owing
	until int // ordering groups that were taken when those it found have been looked at
}

const (
	maxSweeps  = 64   // more of them become one over everything
	sweepBelow = 2000 // ordering groups that are ready
)

// sweep has the ordering groups of a destination, an exchange or topic or (the zero paused
// destination) everything looked for.
func (f *feeder) sweep(g pausedDest) {
	for _, s := range f.sweeps {
		if s.of == g || s.of == (pausedDest{}) && !s.begun {
			s.again = s.again || s.begun
			return
		}
	}
	if len(f.sweeps) >= maxSweeps || g == (pausedDest{}) {
		// One over everything that begins now does what all others had to.
		f.sweeps, g = slices.DeleteFunc(f.sweeps, func(s *sweep) bool { return s.of != (pausedDest{}) }), pausedDest{}
		if len(f.sweeps) > 0 {
			f.sweeps[0].again = f.sweeps[0].again || f.sweeps[0].begun
			return
		}
	}
	f.sweeps = append(f.sweeps, &sweep{walk: walk{of: g, open: true}})
}
