// Rows whose time has come, and rows that have waited too long.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// readyDue readies the ordering groups whose heads have waited long enough.
func (f *feeder) readyDue(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.dueAt) || len(f.ready.order)+dueRows > readyLimit {
		return false, nil
	}
	groups, next, err := f.cfg.Store.Due(ctx, dueRows)
	if err != nil {
		return false, err
	}
	for _, group := range groups {
		f.makeReady(group, true)
	}
	switch {
	case len(groups) == dueRows:
		next = dueAgain
	case next <= 0:
		next = dueAtLeast
	}
	f.dueAt = now.Add(min(next, dueAtLeast))
	return true, nil
}

const (
	dueRows    = 500
	dueAgain   = 100 * time.Millisecond // there are more than one call lists
	dueAtLeast = time.Minute
)

// age dead-letters rows that have waited too long for a paused destination and are therefore not
// sent. (The age of a row that is sent is checked when it is rejected.) It reads one page.
func (f *feeder) age(ctx context.Context) (bool, error) {
	now := time.Now()
	if f.cfg.DestinationMaxAge <= 0 || len(f.probes) == 0 {
		return false, nil
	}
	if len(f.aging) == 0 {
		if now.Before(f.ageAt) {
			return false, nil
		}
		f.ageAt = now.Add(min(max(f.cfg.DestinationMaxAge/20, time.Second), time.Minute))
		for t := range f.probes {
			f.aging = append(f.aging, &walk{of: f.storedTarget(t)})
		}
	}
	rows, bytes := f.room()
	if rows == 0 {
		return false, nil
	}
	w := f.aging[0]
	groups, err := f.next(ctx, w)
	if err != nil {
		return false, err
	}
	old, young, err := f.toDeadLetter(ctx, f.resting(groups, rows), bytes)
	if err != nil {
		return false, err
	}
	// A page is in commit order. So behind a page with young first rows and no old ones there are
	// hardly any old ones for that destination. (A page whose ordering groups are all blocked or in
	// flight says nothing about the rows behind it.)
	if young && !old {
		if err := f.skip(ctx, w, w.at); err != nil {
			return false, err
		}
	}
	if w.ended {
		f.aging = f.aging[1:]
	}
	return true, nil
}

// toDeadLetter makes dead letters of the first rows of ordering groups, as far as they are too old
// and paused. It reports whether there were any, and whether the first row of any ordering group is
// paused and too young.
func (f *feeder) toDeadLetter(ctx context.Context, groups []uint64, bytes int64) (old, young bool, err error) {
	if len(groups) == 0 {
		return false, false, nil
	}
	perGroup := 1
	if !f.cfg.Block { // otherwise the first blocks the rest
		perGroup = max(1, min(maxRun, (budgetRows-f.rows)/len(groups)))
	}
	read, err := f.read(ctx, groups, perGroup, bytes, f.s.writer.acked.Load())
	if err != nil {
		return false, false, err
	}
	var out []*run
	for i := range read {
		r := &run{group: read[i].Group, judged: true}
		for n, row := range read[i].Rows {
			at, ok := f.place(row)
			waits := ok && f.isPaused(at, 0)
			aged := waits && f.tooOld(row, at, time.Time{})
			young = young || n == 0 && waits && !aged
			if !aged || read[i].Blocked {
				break
			}
			r.ordered, r.lane, r.exchangeOrTopic = row.Ordered, at.Lane, at.ExchangeOrTopic
			r.rows = append(r.rows, row)
			r.bytes += int64(row.Event.Size())
			r.results = append(r.results, f.deadLetteredUnsent(row, at))
		}
		if len(r.rows) > 0 {
			r.more = true
			old = true
			out = append(out, r)
		}
	}
	for _, r := range out {
		f.reserve(r)
	}
	f.launch(out)
	return old, young, nil
}

// deadLetteredUnsent is the result of a row that is too old. The row keeps its own last rejection.
// If it has none, the result names the fault that paused its place.
func (f *feeder) deadLetteredUnsent(row *store.Row, at sink.Place) store.Result {
	res := store.Result{Row: row, Kind: store.Dead, Attempts: row.Attempts}
	if p := f.probes[f.pausedTarget(at)]; row.Reason == "" && p != nil && p.fault != nil {
		res.Class, res.Reason, res.Text, res.Destination = p.fault.Class, p.fault.Reason, p.fault.Text, p.fault.Destination
	}
	return res
}
