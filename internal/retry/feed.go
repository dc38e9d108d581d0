// Offering rows to their lanes.

package retry

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// feed reads the ordering groups that are ready, and offers those rows that may go.
func (f *feeder) feed(ctx context.Context) (bool, error) {
	f.swept = false
	rows, bytes := f.room()
	if len(f.ready.order) == 0 || rows == 0 {
		return false, nil
	}
	began := time.Now()
	taken := f.readable(f.atRest(f.ready.take(min(len(f.ready.order), maxGroups, rows))))
	if len(taken) == 0 {
		return true, nil
	}
	groups, here := f.groupsToRead(taken)
	// This comes before acked is read: a row that the writer no longer has is not above acked.
	acked := f.s.writer.acked.Load()
	perGroup := min(max(rows/len(groups), 1), maxRun)
	runs, err := f.read(ctx, groups, perGroup, bytes, acked)
	if err != nil {
		f.ready.putBack(taken)
		return false, err
	}
	taken = f.readable(taken)
	var read int64
	of := make(map[uint64]*store.Run, len(runs))
	for i := range runs {
		of[runs[i].Group] = &runs[i]
		for _, row := range runs[i].Rows {
			read += int64(row.Event.Size())
		}
	}
	var out []*run
	for _, e := range taken {
		if r := f.decide(e, of[e.group], here[e.group]); r != nil {
			// otherwise the last row of the run is the last of the ordering group
			r.more = r.more || len(r.rows) == perGroup || read >= bytes/2
			f.reserve(r)
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		f.sweepCost += time.Since(began)
	}
	f.launch(out)
	return true, nil
}

// queueState tells whether the writer has rows of an ordering group, and whether they are stuck.
type queueState struct{ here, stuck bool }

// atRest leaves out the ordering groups that are in flight: they become ready again when they have
// finished.
func (f *feeder) atRest(taken []*readied) []*readied {
	f.taken += len(taken)
	return slices.DeleteFunc(taken, func(e *readied) bool {
		r := f.runs[e.group]
		if r != nil {
			r.again = true
		}
		return r != nil
	})
}

// groupsToRead lists the ordering groups to read, and the writer's state of each.
func (f *feeder) groupsToRead(taken []*readied) (groups []uint64, here map[uint64]queueState) {
	here = make(map[uint64]queueState, len(taken))
	for _, e := range taken {
		var h queueState
		h.here, h.stuck = f.s.writer.hasGroup(e.group)
		here[e.group] = h
		groups = append(groups, e.group)
	}
	return groups, here
}

// decide decides what of an ordering group may go now: a run, or nil. read is nil when the tables
// hold nothing of it.
func (f *feeder) decide(e *readied, read *store.Run, h queueState) *run {
	switch {
	case read == nil:
		f.nothingStored(e.group, h)
		return nil
	case read.Blocked:
		f.notNow(e.group)
		return f.waits(e, read)
	case len(read.Rows) == 0 && h.here:
		// the writer has not reported its first row as committed yet, and will notify; or the row
		// had no room
		if h.stuck {
			f.notNow(e.group)
		}
		f.readyLater(e.group, 100*time.Millisecond)
		return nil
	case len(read.Rows) == 0: // its first row had no room
		f.makeReady(e.group, e.due)
		return nil
	}
	head := read.Rows[0]
	at, known := f.place(head)
	switch now := time.Now(); {
	case head.NextAttempt.After(now):
		// if a row is due, it is a later one, which was rejected in the same call
		if head.NextAttempt.Before(f.dueAt) {
			f.dueAt = head.NextAttempt
		}
		f.notNow(e.group)
		return f.waits(e, read)
	case !known:
		f.notNow(e.group)
		f.readyLater(e.group, time.Second)
		return nil
	case f.isPaused(at, e.group):
		f.notNow(e.group)
		return f.waits(e, read)
	case f.lanes[at.Lane] >= laneRows:
		return f.laneIsFull(e, read, at.Lane)
	}
	r := f.newRun(e.group, at, head)
	r.more = read.More
	for _, row := range read.Rows {
		// Nothing passes a row that may not go: whatever it was deferred for, the rest of its
		// ordering group stays behind it.
		p, ok := f.place(row)
		apart := row.Ordered && (goesAlone(head) || goesAlone(row))
		if !ok || p.Lane != at.Lane || f.isPaused(p, 0) || row != head && (apart || row.NextAttempt.After(time.Now())) {
			r.more = true
			break
		}
		r.add(row, p)
	}
	return r
}

// nothingStored handles an ordering group without rows in the tables. If its lane may still keep
// new events of it, there are two cases: rows are on their way to the tables, or the ordering group
// is counted with its exchange or topic, of which other ordering groups have rows.
func (f *feeder) nothingStored(group uint64, h queueState) {
	o, owed := f.owed[group]
	switch {
	case !owed:
	case h.stuck:
		f.notNow(group)
	case h.here: // the writer will notify
	default:
		delete(f.owed, group)
		f.owedWhole[o] = group
		f.sweep(target{exchangeOrTopic: o.exchangeOrTopic})
	}
}

// waits handles an ordering group that is due and still may not go. It becomes ready when what it
// waits for ends. So its NextAttempt is removed: otherwise Due would list it again and again, in
// the place of others.
func (f *feeder) waits(e *readied, read *store.Run) *run {
	if !e.due {
		return nil
	}
	r := &run{group: e.group, judged: true}
	for _, row := range read.Rows {
		if !row.NextAttempt.IsZero() && !row.NextAttempt.After(time.Now()) {
			r.results = append(r.results, store.Result{Row: row, Kind: store.Backoff, Attempts: row.Attempts})
		}
	}
	if len(r.results) == 0 {
		return nil
	}
	return r
}

// laneIsFull handles an ordering group whose lane has enough rows for now.
func (f *feeder) laneIsFull(e *readied, read *store.Run, lane int) *run {
	if r := f.waits(e, read); r != nil {
		f.notNow(e.group)
		r.again = true // the ordering group is set aside when the run comes back
		return r
	}
	if !f.ready.setAside(e, lane) {
		f.notNow(e.group)
	}
	return nil
}
