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
	target order.Target // Dest 0: the whole exchange or topic
	// forOldRows: it looks for rows that are too old, where nothing else goes
	forOldRows bool
	// forResends: it looks for rows of resends, which no lane knows of, and begins again while
	// there are any
	forResends    bool
	afterResent   store.ResentRow
	cursor        store.Cursor
	begun         bool
	groups        []uint64 // of the last page, not read yet
	foundRows     bool     // any row
	foundSendable bool     // the last page had a row that may go
	// what the first rows that were handed to lanes wait for, of paused targets
	givenHeads map[order.Target]bool
	// leftOutPaused: something was left out behind a pause, whose end starts another walk;
	// incomplete: something could not be placed or read, or its lane is full
	leftOutPaused, incomplete bool
	askedAgain                bool // it was asked for since it began
	due, started              time.Time
}

// pageRows is how many rows a page reads, and firstRows how many rows of each of its groups.
const (
	pageRows      = 500
	firstRows     = 4
	heldWalkPause = 500 * time.Millisecond
	walkPause     = time.Second // after an incomplete walk, or nine times what it took
)

// startWalk starts a walk, if there is none. One that is under way does not answer a lane's
// request: the group that was forgotten was still known while the walk passed it. Lanes are not
// told when the walk for rows of resends begins and ends: no new event is ever of the ordering
// group of such a row.
func (f *feeder) startWalk(start walk) {
	for _, w := range f.walks {
		if w.target != start.target || w.forOldRows != start.forOldRows || w.forResends != start.forResends {
			continue
		}
		if w.askedAgain = w.begun; w.forResends {
			w.askedAgain, w.due, f.walkDueAt = true, time.Time{}, time.Time{}
		}
		return
	}
	f.walkDueAt = time.Time{}
	f.walks = append(f.walks, &start)
}

// walkNextPage reads the next page of a walk when there is room for what it finds. The walks take
// turns. Pages of which nothing may go cost no more than a tenth of the time while rows are with
// the lanes.
func (f *feeder) walkNextPage(ctx context.Context) (bool, error) {
	began := time.Now()
	if len(f.walks) == 0 || began.Before(f.walkDueAt) {
		return false, nil
	}
	if f.t.line.Pauses().GuardIsOn() { // the lanes would give back what it finds
		f.walkDueAt = began.Add(heldWalkPause)
		return false, nil
	}
	if rows, _ := f.budget.freeRoom(); rows == 0 {
		f.walkDueAt = began.Add(10 * time.Millisecond)
		return false, nil
	}
	w := f.walks[0]
	if f.walks = append(f.walks[1:], w); w.due.After(began) {
		f.walkDueAt = slices.MinFunc(f.walks, func(a, b *walk) int { return a.due.Compare(b.due) }).due
		return false, nil
	}
	if w.started.IsZero() {
		w.started = began
	}
	w.foundSendable = false
	ended, err := f.readPage(ctx, w)
	if err != nil {
		return false, err
	}
	if !w.foundSendable && (len(f.wants) > 0 || f.budget.total.rows > 0) {
		f.walkDueAt = time.Now().Add(9 * time.Since(began))
	}
	if ended {
		f.walks = f.walks[:len(f.walks)-1]
		f.endWalk(w)
	}
	return true, nil
}

// readPage reads the next page, and says whether it was the last.
func (f *feeder) readPage(ctx context.Context, w *walk) (ended bool, err error) {
	switch {
	case len(w.groups) > 0:
		return f.giveGroupsToLanes(ctx, w)
	case w.forResends:
		groups, behind, some, err := f.cfg.Store.GroupsOfResends(ctx, w.afterResent, pageRows)
		if err != nil {
			return false, err
		}
		w.foundRows = w.foundRows || some
		if w.groups, w.afterResent = groups, behind; len(groups) == 0 {
			return true, nil
		}
		return f.giveGroupsToLanes(ctx, w)
	case !w.begun && w.target.Dest != 0:
		w.cursor, w.begun = store.Cursor{ExchangeOrTopic: w.target.ExchangeOrTopic, Dest: w.target.Dest}, true
	case !w.begun:
		if !w.forOldRows { // before the first read: it may miss what a lane forgets later
			f.t.line.Found(order.AllLanes, []order.Found{{ExchangeOrTopic: w.target.ExchangeOrTopic, WalkBegins: true}})
		}
		ended, err = f.skipDestination(ctx, w, store.Cursor{ExchangeOrTopic: w.target.ExchangeOrTopic, Dest: firstDest})
		w.begun = err == nil
		return ended, err
	}
	// A paused destination, or exchange or topic, is read until there is a row to probe it with.
	target, paused := f.t.line.Pauses().Target(sink.Place{ExchangeOrTopic: w.cursor.ExchangeOrTopic, Dest: w.cursor.Dest})
	if paused && !w.forOldRows && w.givenHeads[target] {
		f.leftOutPaused[target], w.leftOutPaused = true, true
		if target.Dest == 0 {
			return true, nil
		}
		return f.skipDestination(ctx, w, w.cursor)
	}
	groups, next, err := f.cfg.Store.GroupsOfDestination(ctx, w.cursor, pageRows)
	switch {
	case err != nil:
		return false, err
	case len(groups) == 0:
		return f.skipDestination(ctx, w, w.cursor)
	}
	w.cursor, w.groups, w.foundRows = next, groups, true
	return f.giveGroupsToLanes(ctx, w)
}

// skipDestination goes on behind the destination of a cursor; ended when there is none.
func (f *feeder) skipDestination(ctx context.Context, w *walk, from store.Cursor) (ended bool, err error) {
	if w.target.Dest != 0 {
		return true, nil
	}
	at, ok, err := f.cfg.Store.NextDestination(ctx, from)
	if err != nil {
		return false, err
	}
	w.cursor = at
	return !ok || at.ExchangeOrTopic != w.target.ExchangeOrTopic, nil
}

// firstDest is below the lowest Dest as Cursor compares them.
const firstDest uint64 = 1 << 63

// giveGroupsToLanes reads the first rows of the ordering groups of a page, as many as there is room
// for, and hands them to their lanes. A walk that looks for old rows goes on to the next
// destination behind rows that are young: a destination's rows are in commit order.
func (f *feeder) giveGroupsToLanes(ctx context.Context, w *walk) (ended bool, err error) {
	wants := make([]store.Want, len(w.groups))
	for i, group := range w.groups {
		wants[i].Group = group
	}
	_, bytes := f.budget.freeRoom()
	began := time.Now()
	runs, err := f.readParts(ctx, wants, firstRows, max(bytes/2, 1))
	if err != nil {
		return false, err
	}
	left, young, old := w.groups[:0], false, false
	for i, r := range runs {
		found := f.foundOf(&r, w.target.ExchangeOrTopic)
		found.Walk, found.ReadAt = true, began
		if w.forResends && len(r.Rows) > 0 {
			found.ExchangeOrTopic = r.Rows[0].ExchangeOrTopic
		}
		switch {
		case len(found.Rows) > 0 && f.budget.isFull(found.Rows[0].Place.Lane), found.Failed:
			w.incomplete = true
		case len(found.Rows) > 0:
			head := found.Rows[0]
			isOld := f.t.line.Pauses().TooOld(head.Place, head.Row.DeferredAt)
			// a copy is no older than its job, whatever its position
			young, old = young || !isOld && head.Row.Resend == 0, old || isOld
			if target, paused := f.t.line.Pauses().Target(head.Place); !paused {
				w.foundSendable = true
			} else {
				if w.givenHeads == nil {
					w.givenHeads = map[order.Target]bool{}
				}
				w.givenHeads[target] = true
			}
			f.giveToLane(head.Place.Lane, found)
		// It had no room; the first one of a statement always has. Otherwise its first row is not
		// known to be committed: then its lane knows the group.
		case r.More && !r.Blocked && i > 0:
			left = append(left, r.Group)
		}
	}
	if w.groups = left; w.forOldRows && young && !old {
		w.groups = nil
		return f.skipDestination(ctx, w, w.cursor)
	}
	return false, nil
}

// endWalk starts a walk again if it must be repeated, and tells the lanes when it is complete. If
// it found no row the pause of its target is forgotten.
func (f *feeder) endWalk(w *walk) {
	if w.forResends {
		if w.foundRows || w.askedAgain { // some wait for their time, or a lane has given them back
			next := &walk{forResends: true}
			if now := time.Now(); !w.askedAgain {
				next.due = now.Add(max(walkPause, 9*now.Sub(w.started)))
			}
			f.walks = append(f.walks, next)
		}
		return
	}
	if !w.foundRows && !w.forOldRows { // there is nothing to probe it with
		f.t.line.Pauses().Forget(w.target, time.Now())
	}
	if w.forOldRows || w.target.Dest != 0 {
		return
	}
	switch {
	case w.askedAgain:
		f.startWalk(walk{target: w.target})
	case w.incomplete:
		now := time.Now()
		f.walks = append(f.walks, &walk{target: w.target, due: now.Add(max(walkPause, 9*now.Sub(w.started)))})
	}
	// a dead letter blocks its ordering group, and no walk finds that
	if !w.incomplete && !w.leftOutPaused && !f.cfg.Block {
		f.t.line.Found(order.AllLanes, []order.Found{{ExchangeOrTopic: w.target.ExchangeOrTopic, WalkEnds: true}})
	}
}

// startWalksForPauses starts walks: for what was left out behind a pause that has ended, for paused
// targets without a row to probe them with, and for those where rows may be too old.
func (f *feeder) startWalksForPauses(context.Context) (bool, error) {
	now, all := time.Now(), f.t.line.Pauses()
	if v := all.Version(); v != f.pausesVersion {
		f.pausesVersion = v
		for t := range f.leftOutPaused {
			if !all.Paused(sink.Place{ExchangeOrTopic: t.ExchangeOrTopic, Dest: t.Dest}) {
				delete(f.leftOutPaused, t)
				f.startWalk(walk{target: order.Target{ExchangeOrTopic: t.ExchangeOrTopic}})
			}
		}
	}
	if now.Before(f.pausesDueAt) || !all.AnyPaused() || all.GuardIsOn() {
		return false, nil
	}
	f.pausesDueAt = now.Add(time.Second)
	for _, t := range all.TargetsWithoutRows(now) {
		f.startWalk(walk{target: t})
	}
	if now.Before(f.oldRowsDueAt) {
		return false, nil
	}
	f.oldRowsDueAt = now.Add(min(max(f.cfg.DestinationMaxAge/20, time.Second), time.Minute))
	for _, t := range all.OldTargets() {
		f.startWalk(walk{target: t, forOldRows: true})
	}
	return false, nil
}
