// Rows that the database refuses: they are tried again, and keep later ones of their group waiting.

package retry

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// stuckRow is a row that the database refuses, with the later rows of its ordering group that wait
// behind it. If a later row were written without it, the later one would be sent first. The refused
// row is tried again for ever: nothing is dropped (I8).
type stuckRow struct {
	first  *inflight.Event
	behind []*inflight.Event
	err    string
	since  time.Time
	tries  int
	due    time.Time
}

// Between two tries of a refused row.
const (
	minRefusedPause = time.Second
	maxRefusedPause = time.Minute
)

// maxShown is how many refused rows Snapshot names.
const maxShown = 20

// group is the ordering group of an event in the tables.
func (w *writer) group(e *inflight.Event) uint64 {
	group, _ := w.t.cfg.Scope.Group(&e.Event, e.Place.ExchangeOrTopic)
	return group
}

// keepStuck notes that the row of an event was refused.
func (w *writer) keepStuck(e *inflight.Event, no *store.Refused) {
	w.mu.Lock()
	now := time.Now()
	group := w.group(e)
	h := w.stuck[group]
	if h == nil {
		h = &stuckRow{first: e, since: now}
		w.stuck[group] = h
	}
	told := h.err
	h.err = no.Err.Error()
	h.due = now.Add(min(minRefusedPause<<min(h.tries, 10), maxRefusedPause))
	h.tries++
	w.mu.Unlock()
	if h.err != told {
		w.t.cfg.Log.Error("database refuses the row of a deferred event: it is tried again and its key waits meanwhile, nothing is dropped",
			w.t.cfg.about(&e.Event, zap.Error(no.Err))...)
	}
}

// dueRefused is a refused row whose time has come.
func (w *writer) dueRefused(now time.Time) (*inflight.Event, bool) {
	for _, h := range w.stuck {
		if !h.due.After(now) {
			h.due = now.Add(maxRefusedPause) // until the result of this try is known
			return h.first, true
		}
	}
	return nil, false
}

// idle returns how long there is nothing to do unless something arrives.
func (w *writer) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return 0
	}
	d := time.Hour
	for _, h := range w.stuck {
		d = min(d, time.Until(h.due))
	}
	return d
}

// notStuck leaves out the entries that are behind a refused row of their ordering group, and keeps
// them there.
func (w *writer) notStuck(part []*inflight.Event) []*inflight.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.stuck) == 0 {
		return part
	}
	free := make([]*inflight.Event, 0, len(part))
	for _, e := range part {
		if h := w.stuck[w.group(e)]; h != nil && h.first != e {
			h.behind = append(h.behind, e)
		} else {
			free = append(free, e)
		}
	}
	return free
}

// freed is called once a refused row is written. It puts the rows that waited behind it back into
// the queue, before all that came later.
func (w *writer) freed(e *inflight.Event) {
	if h := w.stuck[w.group(e)]; h != nil && h.first == e {
		w.queue = append(h.behind, w.queue...)
		delete(w.stuck, w.group(e))
	}
}

// putBack returns entries that were not tried to the queue; the last part goes first.
func (w *writer) putBack(parts [][]*inflight.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, part := range parts {
		w.queue = append(slices.Clone(part), w.queue...)
	}
}

func (w *writer) snapshot() Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Snapshot{Queued: w.events, RefusedAll: len(w.stuck)}
	for _, h := range w.stuck {
		s.Refused = append(s.Refused, RefusedRow{
			Position: h.first.Position, ID: shownID(&h.first.Event), Err: h.err, Since: h.since, Behind: len(h.behind),
		})
	}
	slices.SortFunc(s.Refused, func(a, b RefusedRow) int {
		return cmp.Or(a.Since.Compare(b.Since), a.Position.Compare(b.Position))
	})
	s.Refused = s.Refused[:min(len(s.Refused), maxShown)]
	return s
}
