// Walks: they go through the table, page by page, and hand the first rows of ordering groups to the
// lanes, which may not know them: at the start, and after a lane had no room for them.

package retry

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// walk goes through the rows of an exchange or topic, or of one destination.
type walk struct {
	of order.Target // Dest 0: the whole exchange or topic
	// old: it looks for rows that are too old, where nothing else goes
	old bool
	// resent: it looks for rows of resends, which no lane has been told of, and does so again while
	// there are any
	resent bool
	behind store.ResentRow
	at     store.Cursor
	begun  bool
	groups []uint64 // of the last page, not read yet
	found  bool     // any row
	useful bool     // the last page had a row that may go
	// what the first rows that were handed to lanes wait for, of paused targets
	handed map[order.Target]bool
	// skipped: something was left out behind a pause, whose end starts another walk; incomplete:
	// something could not be placed or read, or its lane is full
	skipped, incomplete bool
	again               bool // it was asked for since it began
	due, started        time.Time
}

// pageRows is how many rows a page reads, and firstRows how many rows of each of its groups.
const (
	pageRows  = 500
	firstRows = 4
	heldPause = 500 * time.Millisecond
	walkAgain = time.Second // after an incomplete walk, or nine times what it took
)

// startWalk starts a walk, if there is none. One that is under way does not answer a lane's
// request: the group that was forgotten was still known while the walk passed it. The walk for rows
// of resends needs no word of its begin and end to the lanes: no new event is ever of the ordering
// group of such a row.
func (f *feeder) startWalk(start walk) {
	for _, w := range f.walks {
		if w.of != start.of || w.old != start.old || w.resent != start.resent {
			continue
		}
		if w.again = w.begun; w.resent {
			w.again, w.due, f.walkAt = true, time.Time{}, time.Time{}
		}
		return
	}
	f.walkAt = time.Time{}
	f.walks = append(f.walks, &start)
}

// walkOn reads the next page of a walk when there is room for what it finds. The walks take turns.
// Pages of which nothing may go cost no more than a tenth of the time while rows are with the
// lanes.
func (f *feeder) walkOn(ctx context.Context) (bool, error) {
	began := time.Now()
	if len(f.walks) == 0 || began.Before(f.walkAt) {
		return false, nil
	}
	if f.t.line.Pauses().GuardIsOn() { // the lanes would give back what it finds
		f.walkAt = began.Add(heldPause)
		return false, nil
	}
	if rows, _ := f.budget.room(); rows == 0 {
		f.walkAt = began.Add(10 * time.Millisecond)
		return false, nil
	}
	w := f.walks[0]
	if f.walks = append(f.walks[1:], w); w.due.After(began) {
		f.walkAt = slices.MinFunc(f.walks, func(a, b *walk) int { return a.due.Compare(b.due) }).due
		return false, nil
	}
	if w.started.IsZero() {
		w.started = began
	}
	w.useful = false
	ended, err := f.page(ctx, w)
	if err != nil {
		return false, err
	}
	if !w.useful && (len(f.wants) > 0 || f.budget.all.rows > 0) {
		f.walkAt = time.Now().Add(9 * time.Since(began))
	}
	if ended {
		f.walks = f.walks[:len(f.walks)-1]
		f.ended(w)
	}
	return true, nil
}

// page reads the next page, and says whether it was the last.
func (f *feeder) page(ctx context.Context, w *walk) (ended bool, err error) {
	switch {
	case len(w.groups) > 0:
		return f.handOver(ctx, w)
	case w.resent:
		groups, behind, some, err := f.cfg.Store.Resent(ctx, w.behind, pageRows)
		if err != nil {
			return false, err
		}
		w.found = w.found || some
		if w.groups, w.behind = groups, behind; len(groups) == 0 {
			return true, nil
		}
		return f.handOver(ctx, w)
	case !w.begun && w.of.Dest != 0:
		w.at, w.begun = store.Cursor{ExchangeOrTopic: w.of.ExchangeOrTopic, Dest: w.of.Dest}, true
	case !w.begun:
		if !w.old { // before the first read: it may miss what a lane forgets later
			f.t.line.Found(order.AllLanes, []order.Found{{ExchangeOrTopic: w.of.ExchangeOrTopic, WalkBegins: true}})
		}
		ended, err = f.skip(ctx, w, store.Cursor{ExchangeOrTopic: w.of.ExchangeOrTopic, Dest: firstDest})
		w.begun = err == nil
		return ended, err
	}
	// A paused destination, or exchange or topic, is read until there is a row to probe it with.
	target, paused := f.t.line.Pauses().Target(sink.Place{ExchangeOrTopic: w.at.ExchangeOrTopic, Dest: w.at.Dest})
	if paused && !w.old && w.handed[target] {
		f.skipped[target], w.skipped = true, true
		if target.Dest == 0 {
			return true, nil
		}
		return f.skip(ctx, w, w.at)
	}
	groups, next, err := f.cfg.Store.Sweep(ctx, w.at, pageRows)
	switch {
	case err != nil:
		return false, err
	case len(groups) == 0:
		return f.skip(ctx, w, w.at)
	}
	w.at, w.groups, w.found = next, groups, true
	return f.handOver(ctx, w)
}

// skip goes on behind the destination of a cursor; ended when there is none.
func (f *feeder) skip(ctx context.Context, w *walk, from store.Cursor) (ended bool, err error) {
	if w.of.Dest != 0 {
		return true, nil
	}
	at, ok, err := f.cfg.Store.Skip(ctx, from)
	if err != nil {
		return false, err
	}
	w.at = at
	return !ok || at.ExchangeOrTopic != w.of.ExchangeOrTopic, nil
}

// firstDest is below the lowest Dest as Cursor compares them.
const firstDest uint64 = 1 << 63

// handOver reads the first rows of the ordering groups of a page, as many as there is room for, and
// hands them to their lanes. A walk that looks for old rows goes on to the next destination behind
// rows that are young: a destination's rows are in commit order.
func (f *feeder) handOver(ctx context.Context, w *walk) (ended bool, err error) {
	wants := make([]store.Want, len(w.groups))
	for i, group := range w.groups {
		wants[i].Group = group
	}
	_, bytes := f.budget.room()
	began := time.Now()
	runs, err := f.readParts(ctx, wants, firstRows, max(bytes/2, 1))
	if err != nil {
		return false, err
	}
	left, young, old := w.groups[:0], false, false
	for i, r := range runs {
		found := f.foundOf(&r, w.of.ExchangeOrTopic)
		found.Walk, found.ReadAt = true, began
		if w.resent && len(r.Rows) > 0 {
			found.ExchangeOrTopic = r.Rows[0].ExchangeOrTopic
		}
		switch {
		case len(found.Rows) > 0 && f.budget.full(found.Rows[0].Place.Lane), found.Failed:
			w.incomplete = true
		case len(found.Rows) > 0:
			head := found.Rows[0]
			isOld := f.t.line.Pauses().TooOld(head.Place, head.Row.DeferredAt)
			// a copy is no older than its job, whatever its position
			young, old = young || !isOld && head.Row.Resend == 0, old || isOld
			if target, paused := f.t.line.Pauses().Target(head.Place); !paused {
				w.useful = true
			} else {
				if w.handed == nil {
					w.handed = map[order.Target]bool{}
				}
				w.handed[target] = true
			}
			f.hand(head.Place.Lane, found)
		// It had no room; the first one of a statement always has. Otherwise its first row is not
		// known to be committed: then its lane knows the group.
		case r.More && !r.Blocked && i > 0:
			left = append(left, r.Group)
		}
	}
	if w.groups = left; w.old && young && !old {
		w.groups = nil
		return f.skip(ctx, w, w.at)
	}
	return false, nil
}

// ended is called at the end of a walk.
func (f *feeder) ended(w *walk) {
	if w.resent {
		if w.found || w.again { // some wait for their time, or a lane has given them back
			next := &walk{resent: true}
			if now := time.Now(); !w.again {
				next.due = now.Add(max(walkAgain, 9*now.Sub(w.started)))
			}
			f.walks = append(f.walks, next)
		}
		return
	}
	if !w.found && !w.old { // there is nothing to probe it with
		f.t.line.Pauses().Forget(w.of, time.Now())
	}
	if w.old || w.of.Dest != 0 {
		return
	}
	switch {
	case w.again:
		f.startWalk(walk{of: w.of})
	case w.incomplete:
		now := time.Now()
		f.walks = append(f.walks, &walk{of: w.of, due: now.Add(max(walkAgain, 9*now.Sub(w.started)))})
	}
	// a dead letter blocks its ordering group, and no walk finds that
	if !w.incomplete && !w.skipped && !f.cfg.Block {
		f.t.line.Found(order.AllLanes, []order.Found{{ExchangeOrTopic: w.of.ExchangeOrTopic, WalkEnds: true}})
	}
}

// lookAtPauses starts walks: for what was left out behind a pause that has ended, for paused
// targets without a row to probe them with, and for those where rows may be too old.
func (f *feeder) lookAtPauses(context.Context) (bool, error) {
	now, all := time.Now(), f.t.line.Pauses()
	if v := all.Version(); v != f.version {
		f.version = v
		for t := range f.skipped {
			if !all.Paused(sink.Place{ExchangeOrTopic: t.ExchangeOrTopic, Dest: t.Dest}) {
				delete(f.skipped, t)
				f.startWalk(walk{of: order.Target{ExchangeOrTopic: t.ExchangeOrTopic}})
			}
		}
	}
	if now.Before(f.pausesAt) || !all.AnyPaused() || all.GuardIsOn() {
		return false, nil
	}
	f.pausesAt = now.Add(time.Second)
	for _, t := range all.TargetsWithoutRows(now) {
		f.startWalk(walk{of: t})
	}
	if now.Before(f.oldAt) {
		return false, nil
	}
	f.oldAt = now.Add(min(max(f.cfg.DestinationMaxAge/20, time.Second), time.Minute))
	for _, t := range all.OldTargets() {
		f.startWalk(walk{of: t, old: true})
	}
	return false, nil
}
